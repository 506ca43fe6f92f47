"""The model a trainer holds: body, head, and the adapter where one is trained.

1. A packed batch goes through the body once; attention stays inside each row.
2. The head runs at trained tokens alone: a policy's a chunk of tokens at a time
   (:mod:`axisrl.ops.logprobs`), a value model's at once (:mod:`axisrl_local.value_head`).
3. Weights have Hugging Face names, whatever peft calls them inside. Tied ones count once.

It knows no optimizer, no loss and no file but the folder it was loaded from.

Shapes: ``M`` trained tokens, ``H`` hidden size.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from axisrl.config.lora import LoraOptions
from axisrl.errors import EnvironmentProblem
from axisrl.ops.head_plan import head_plan
from axisrl.ops.logprobs import token_logprobs
from axisrl.ops.token_batch import TokenBatch
from axisrl.types import ModelSpec
from axisrl_local.load import load_model
from axisrl_local.lora import Adapter, add_adapter, base_name
from axisrl_local.packed import register_packed_attention
from axisrl_local.trainer_config import TrainerConfig
from axisrl_local.value_head import HEAD, values_of


class HeldModel:
    """A loaded model. ``net`` is transformers' own object."""

    def __init__(self, spec: ModelSpec, config: TrainerConfig, *, seed: int) -> None:
        self.spec = spec
        self.adapter: Adapter | None = None
        self._config = config
        self.net: Any = load_model(spec, attention=register_packed_attention(), seed=seed)
        if spec.head == "lm":
            _check_output_layer(self.net, spec)

    @property
    def device(self) -> torch.device:
        """Where all of it is."""
        device: torch.device = self.net.device
        return device

    def freeze(self) -> None:
        """No weight gets a gradient from here on."""
        self.net.requires_grad_(False)

    def recompute(self) -> None:
        """Keep one activation a layer and compute the rest again in the backward pass."""
        self.net.gradient_checkpointing_enable({"use_reentrant": False})
        self.net.train()  # transformers recomputes in this mode alone

    def adapt(self, options: LoraOptions) -> None:
        """Train an adapter, and the value head where there is one, and nothing else."""
        self.adapter = add_adapter(self.net, options)
        if self.spec.head == "value":
            getattr(self.net, HEAD).requires_grad_(True)

    def trained(self) -> dict[str, torch.nn.Parameter]:
        """What an optimizer moves."""
        named = self.net.named_parameters()
        return {base_name(name): value for name, value in named if value.requires_grad}

    def weights(self) -> dict[str, Tensor]:
        """All weights under their base names, the adapter merged in; without an adapter not
        copied."""
        named = {base_name(name): value.detach() for name, value in self.net.named_parameters()}
        if self.adapter is None:
            return named
        own = self.adapter.tensors().keys()
        return self.adapter.merge_into({n: value for n, value in named.items() if n not in own})

    def training(self) -> AbstractContextManager[None]:
        """A gradient pass: an adapter's dropout acts inside."""
        return nullcontext() if self.adapter is None else self.adapter.dropping()

    def logprobs(self, tokens: TokenBatch, *, entropy: bool = False) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies (0 unless asked for) of the trained tokens, (M,)."""
        plan = head_plan(self._config, self.device, entropy=entropy)
        temperature_M = tokens.temperature_M
        weight_VH = self.net.get_output_embeddings().weight
        hidden_MH = self._hidden(tokens)
        return token_logprobs(hidden_MH, weight_VH, tokens.labels_M, temperature_M, plan)

    def values(self, tokens: TokenBatch) -> Tensor:
        """V of the states that the trained tokens follow, (M,)."""
        return values_of(self.net, self._hidden(tokens))

    def _hidden(self, tokens: TokenBatch) -> Tensor:
        output = self.net.base_model(
            input_ids=tokens.ids_N[None],
            position_ids=tokens.positions_N[None],
            use_cache=False,
            rows=tokens.rows,
        )
        hidden_NH: Tensor = output.last_hidden_state[0]
        return hidden_NH.index_select(0, tokens.trained_M)


def _check_output_layer(model: Any, spec: ModelSpec) -> None:
    head = model.get_output_embeddings()
    if not isinstance(head, torch.nn.Linear) or head.bias is not None:
        raise EnvironmentProblem(
            f"model {spec.name!r} has an output layer other than a plain matrix",
            fix="use a Llama, Qwen2 or Qwen3 type model",
        )
