"""Low-rank adapters (LoRA, arXiv 2106.09685) in a loaded model, by peft.

peft replaces each targeted linear layer in place, so the model's own forward pass stays as it is.
A starts random, B at 0: the first policy is the base model. The base gets no
gradient. Dropout, where asked for, acts on gradient passes alone: what is measured or compared with
sampled tokens is the policy itself.

It does not merge anything into the base: :mod:`axisrl.ops.low_rank` computes merged weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from axisrl.config.lora import LoraOptions
from axisrl.errors import EnvironmentProblem
from axisrl.ops.low_rank import factor_names, merged, weight_name
from axisrl.types import AdapterMeta

_NAME = "default"
"""peft's name of the one adapter."""


class Adapter:
    """The adapter that :func:`add_adapter` put into a model."""

    def __init__(self, layers: Mapping[str, Any], options: LoraOptions) -> None:
        self._layers = layers
        self._dropouts = [layer.lora_dropout[_NAME] for layer in layers.values()]
        self.meta = AdapterMeta(
            rank=options.rank, scale=options.alpha / options.rank, targets=tuple(layers)
        )
        self._set_dropping(False)

    def tensors(self) -> dict[str, torch.nn.Parameter]:
        """A and B of every target, under the names of a weight update."""
        found = {}
        for module, layer in self._layers.items():
            a, b = factor_names(module)
            found[a], found[b] = layer.lora_A[_NAME].weight, layer.lora_B[_NAME].weight
        return found

    def merge_into(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """``weights`` (base names) with the targets' replaced by merged copies."""
        tensors = self.tensors()
        changed = {}
        for module in self._layers:
            a, b = (tensors[name] for name in factor_names(module))
            name = weight_name(module)
            changed[name] = merged(weights[name], a, b, self.meta.scale)
        return {**weights, **changed}

    @contextmanager
    def dropping(self) -> Iterator[None]:
        """Dropout acts inside."""
        self._set_dropping(True)
        try:
            yield
        finally:
            self._set_dropping(False)

    def _set_dropping(self, on: bool) -> None:
        for dropout in self._dropouts:
            dropout.train(on)


def add_adapter(model: Any, options: LoraOptions) -> Adapter:
    """Freeze ``model`` and give its targeted layers an adapter of the model's dtype, drawn from
    torch's generators.

    Raises ``EnvironmentProblem`` without peft and ``ConfigError`` for a target the model lacks.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as problem:
        raise EnvironmentProblem(
            f"trainer.lora needs peft, which cannot be imported: {problem}",
            fix="pip install 'axisrl-plugin-local[lora]'",
        ) from problem
    targets = options.chosen(_linear(model))
    settings = LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha,
        lora_dropout=options.dropout,
        target_modules=targets,
    )
    inject_adapter_in_model(settings, model, _NAME)
    adapter = Adapter({name: model.get_submodule(name) for name in targets}, options)
    for tensor in adapter.tensors().values():
        tensor.data = tensor.data.to(model.dtype)
    return adapter


def base_name(name: str) -> str:
    """The Hugging Face name of what peft calls ``name``."""
    return name.replace(".base_layer.", ".").replace(f".{_NAME}.", ".")


def _linear(model: Any) -> list[str]:
    """Full names of the linear layers of the model's body."""
    prefix = model.base_model_prefix
    return [
        f"{prefix}.{name}"
        for name, module in model.base_model.named_modules()
        if isinstance(module, torch.nn.Linear)
    ]
