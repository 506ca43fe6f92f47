"""Loads and saves model folders with transformers, for the engine and the trainer alike.

It does not fetch anything: :mod:`axisrl.protocols.model` sources do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from axisrl.errors import EnvironmentProblem
from axisrl.types import ModelSpec

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


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


def load_model(spec: ModelSpec, *, attention: str = "sdpa") -> Any:
    """The transformers causal model of ``spec`` in its dtype on its device, in eval mode.

    ``attention`` is a name of transformers' ``AttentionInterface``. Tied embeddings stay tied.
    Raises ``EnvironmentProblem`` when the folder is missing, incomplete or not a causal model.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    device = resolve_device(spec.device)
    if not (spec.path / "config.json").is_file():
        raise EnvironmentProblem(
            f"model {spec.name!r}: {spec.path} has no config.json",
            fix="check model.name; `axisrl models` lists the named ones",
        )
    try:
        with no_progress_bar():
            model, report = AutoModelForCausalLM.from_pretrained(
                spec.path,
                dtype=_DTYPES[spec.dtype],
                attn_implementation=attention,
                local_files_only=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as problem:
        raise EnvironmentProblem(
            f"model {spec.name!r} in {spec.path} cannot be loaded: {problem}",
            fix="the folder needs config.json and complete safetensors files of a causal model",
        ) from problem
    if missing := sorted(report["missing_keys"]):
        raise EnvironmentProblem(
            f"model {spec.name!r} in {spec.path} lacks {len(missing)} weights, first {missing[0]}",
            fix="fetch the model again; its safetensors files are incomplete",
        )
    return model.to(device).eval()


def save_model(model: Any, folder: Path) -> None:
    """Write weights and configuration into the (existing) folder, for :func:`load_model` and every
    other reader of Hugging Face folders; ``save_pretrained`` would draw a bar. Tied weights are
    written once. Tokenizer files are the caller's."""
    from safetensors.torch import save_file

    weights = {name: value.detach().contiguous() for name, value in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    model.config.architectures = [type(model).__name__]  # a folder made from GGUF may lack it
    model.config.save_pretrained(folder)
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
