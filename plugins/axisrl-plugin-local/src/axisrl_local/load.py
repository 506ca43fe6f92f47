"""Loads and saves model folders with transformers, for the engine and the trainer alike.

It does not fetch anything: :mod:`axisrl.protocols.model` sources do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from axisrl.errors import EnvironmentProblem
from axisrl.types import ModelSpec
from axisrl_local.value_head import PARAMETERS, check_value_head, prepare_value_head

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_LOADING = Lock()
"""transformers changes torch's defaults while it loads; two threads would undo each other's."""


def resolve_device(device: str) -> torch.device:
    """The torch device a spec names; ``auto`` is cuda when there is one, else cpu.

    Raises ``EnvironmentProblem`` for a name torch does not know and for cuda without a device.
    """
    available = torch.cuda.is_available()
    if device == "auto":
        return torch.device("cuda" if available else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as problem:
        raise EnvironmentProblem(
            f"model.device {device!r} is not a torch device", fix="use auto, cpu or cuda"
        ) from problem
    if resolved.type == "cuda" and not available:
        raise EnvironmentProblem(
            f"model.device is {device!r} but torch sees no CUDA device",
            fix="set model.device=cpu, or install a CUDA build of torch",
        )
    return resolved


def load_model(spec: ModelSpec, *, attention: str = "sdpa", seed: int = 0) -> Any:
    """The transformers model of ``spec`` in its dtype on its device, in eval mode: causal, or with
    head "value" the body and a value head, made from ``seed`` where the folder has none.

    ``attention`` is a name of transformers' ``AttentionInterface``. Tied embeddings stay tied.
    Raises ``EnvironmentProblem`` when the folder is missing, incomplete or not a causal model.
    """
    device = resolve_device(spec.device)
    model, missing = _from_folder(spec, attention)
    if spec.head == "value":
        check_value_head(model, spec)
        prepare_value_head(model, made=bool(missing & PARAMETERS), seed=seed)
        missing -= PARAMETERS
    if missing:
        raise EnvironmentProblem(
            f"model {spec.name!r} in {spec.path} lacks {len(missing)} weights, first "
            f"{min(missing)}",
            fix="fetch the model again; its safetensors files are incomplete",
        )
    return model.to(device).eval()


def _from_folder(spec: ModelSpec, attention: str) -> tuple[Any, set[str]]:
    """The model and the names of the weights its folder lacks."""
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

    value = spec.head == "value"
    family = AutoModelForTokenClassification if value else AutoModelForCausalLM
    extra = {"num_labels": 1} if value else {}
    if not (spec.path / "config.json").is_file():
        raise EnvironmentProblem(
            f"model {spec.name!r}: {spec.path} has no config.json",
            fix="check model.name; `axisrl models` lists the named ones",
        )
    try:
        # transformers draws a head that the folder lacks, and warns; ours comes from the seed
        silence = _no_report() if value else nullcontext()
        with _LOADING, no_progress_bar(), silence, torch.random.fork_rng([]):
            model, report = family.from_pretrained(
                spec.path,
                dtype=_DTYPES[spec.dtype],
                attn_implementation=attention,
                local_files_only=True,
                output_loading_info=True,
                **extra,
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as problem:
        raise EnvironmentProblem(
            f"model {spec.name!r} in {spec.path} cannot be loaded: {problem}",
            fix="the folder needs config.json and complete safetensors files of a causal model",
        ) from problem
    return model, set(report["missing_keys"])


def save_model(model: Any, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write weights and configuration into the (existing) folder, for :func:`load_model` and every
    other reader of Hugging Face folders; ``save_pretrained`` would draw a bar. Tied weights are
    written once. ``weights`` are what stands in for the model's own. Tokenizer files are the
    caller's."""
    from safetensors.torch import save_file

    found = weights or {name: value.detach() for name, value in model.named_parameters()}
    contiguous = {name: value.contiguous() for name, value in found.items()}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})
    model.config.architectures = [type(model).__name__]  # a folder made from GGUF may lack it
    model.config.save_pretrained(folder)
    if model.can_generate():  # a value model cannot
        model.generation_config.save_pretrained(folder)


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Without transformers' bar, which breaks a run's own display, for the block."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _no_report() -> Iterator[None]:
    """Without transformers' warning of weights that a folder lacks, for the block."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
