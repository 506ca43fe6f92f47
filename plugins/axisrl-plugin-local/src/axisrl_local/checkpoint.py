"""The trainer's state on disk: safetensors for tensors, JSON for counters, nothing pickled.

::

    <path>/model/                  weights, config and tokenizer: a folder transformers loads
    <path>/optimizer.safetensors   moments, float32 master weights, states of torch's generators
    <path>/trainer.json            format, steps taken, updates applied

It does not make the folder durable or mark it finished: the core's checkpoint does.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from axisrl.errors import CheckpointError
from axisrl_local.generators import Generators
from axisrl_local.load import save_model
from axisrl_local.optim import Optimizer

_FORMAT = 1
_MODEL, _TENSORS, _COUNTERS = "model", "optimizer.safetensors", "trainer.json"
_NOT_TOKENIZER = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".h5", ".msgpack", ".index.json")


class TrainerState(NamedTuple):
    """Everything a checkpoint holds."""

    model: Any
    optimizer: Optimizer
    generators: Generators


def save_checkpoint(path: Path, state: TrainerState, model_dir: Path) -> None:
    """Write everything into ``path``; tokenizer files come from ``model_dir``. Raises ``OSError``
    when the disk refuses."""
    model, optimizer, generators = state
    try:
        _export(model, model_dir, path / _MODEL)
        save_file(optimizer.tensors() | generators.tensors(), path / _TENSORS)
    except SafetensorError as problem:  # safetensors' own name for a failed write
        raise OSError(str(problem)) from problem
    counters = {"format": _FORMAT, "steps": optimizer.steps, "updates": optimizer.updates}
    (path / _COUNTERS).write_text(json.dumps(counters, indent=2) + "\n", encoding="utf-8")


def load_checkpoint(path: Path, state: TrainerState) -> None:
    """Put back what :func:`save_checkpoint` wrote. Raises ``CheckpointError`` when it does not fit
    the model or is damaged."""
    model, optimizer, generators = state
    try:
        counters = json.loads((path / _COUNTERS).read_text(encoding="utf-8"))
        if counters["format"] != _FORMAT:
            raise CheckpointError(
                f"trainer state in {path} has format {counters['format']}, not {_FORMAT}",
                fix="resume with the version that wrote it",
            )
        _load_weights(path / _MODEL, dict(model.named_parameters()))
        tensors = load_file(path / _TENSORS)
        optimizer.restore(tensors, steps=counters["steps"], updates=counters["updates"])
        generators.restore(tensors)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as problem:
        raise CheckpointError(
            f"trainer state in {path} cannot be loaded: {problem}",
            fix="use the checkpoint of a run with the same model and trainer options",
        ) from problem


@torch.no_grad()
def _load_weights(folder: Path, parameters: dict[str, torch.nn.Parameter]) -> None:
    missing = set(parameters)
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            for name in set(weights.keys()) & missing:
                parameters[name].copy_(weights.get_tensor(name))
                missing.discard(name)
    if missing:
        raise KeyError(f"{len(missing)} weights are missing, first {min(missing)}")


def _export(model: Any, source: Path, target: Path) -> None:
    """Weights, config and the tokenizer of ``source``."""
    target.mkdir()
    save_model(model, target)
    for file in sorted(source.iterdir()):
        wanted = file.is_file() and not file.name.endswith(_NOT_TOKENIZER)
        if wanted and not (target / file.name).exists():
            shutil.copyfile(file, target / file.name)
