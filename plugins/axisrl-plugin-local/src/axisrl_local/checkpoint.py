"""The trainer's state on disk: safetensors for tensors, JSON for counters, nothing pickled.

::

    <path>/model/                  weights, config and tokenizer: a folder transformers loads
    <path>/adapter.safetensors     with a low-rank adapter: what is trained (``model`` is merged)
    <path>/optimizer.safetensors   moments, float32 master weights, states of torch's generators
    <path>/trainer.json            format, steps taken, updates applied

Of a frozen model there are the folder and ``trainer.json``. It does not make the folder durable or
mark it finished: the core's checkpoint does.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from axisrl.errors import CheckpointError
from axisrl.ops.adamw import Optimizer
from axisrl.ops.generators import Generators
from axisrl_local.folder import MANIFEST
from axisrl_local.held_model import HeldModel
from axisrl_local.load import save_model
from axisrl_local.weights_in import Received, WeightReceiver

_FORMAT = 1
_MODEL, _ADAPTER = "model", "adapter.safetensors"
_TENSORS, _COUNTERS = "optimizer.safetensors", "trainer.json"
_NOT_TOKENIZER = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".h5", ".msgpack", ".index.json")


class TrainerState(NamedTuple):
    """Everything a checkpoint of a trained model holds."""

    model: HeldModel
    optimizer: Optimizer
    generators: Generators

    def save(self, path: Path) -> None:
        """Write everything into ``path``. Raises ``OSError`` when the disk refuses."""
        model, optimizer, generators = self
        counters = {
            "steps": optimizer.steps,
            "updates": optimizer.updates,
            "adapter_scale": _adapter_scale(model),
        }
        with _writing():
            _export(model, path / _MODEL)
            if model.adapter is not None:
                save_file(model.trained(), path / _ADAPTER)
            save_file(optimizer.tensors() | generators.tensors(), path / _TENSORS)
        _write_counters(path, counters)

    def load(self, path: Path) -> None:
        """Put back what :meth:`save` wrote. Raises ``CheckpointError`` when it does not fit the
        model or is damaged."""
        model, optimizer, generators = self
        with _reading(path):
            counters = _read_counters(path)
            _check_adapter(counters["adapter_scale"], _adapter_scale(model))
            weights = sorted((path / _MODEL).glob("*.safetensors"))
            files = weights if model.adapter is None else [path / _ADAPTER]
            _load_weights(files, model.trained())
            tensors = load_file(path / _TENSORS)
            optimizer.restore(tensors, steps=counters["steps"], updates=counters["updates"])
            generators.restore(tensors)


class FrozenState(NamedTuple):
    """What a checkpoint of a frozen model holds: its weights, and whose they are."""

    model: HeldModel
    receiver: WeightReceiver

    def save(self, path: Path) -> None:
        """Write the weights into ``path``. Raises ``OSError`` when the disk refuses."""
        with _writing():
            _export(self.model, path / _MODEL)
        _write_counters(path, {"received": self.receiver.received._asdict()})

    def load(self, path: Path) -> None:
        """Put back what :meth:`save` wrote. Raises ``CheckpointError`` when it does not fit the
        model or is damaged."""
        with _reading(path):
            received = _read_counters(path)["received"]
            self.receiver.expect(Received(tuple(received["adapted"]), received["replaced"]))
            files = sorted((path / _MODEL).glob("*.safetensors"))
            _load_weights(files, self.model.weights())


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except SafetensorError as problem:  # safetensors' own name for a failed write
        raise OSError(str(problem)) from problem


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as problem:
        raise CheckpointError(
            f"trainer state in {path} cannot be loaded: {problem}",
            fix="use the checkpoint of a run with the same model and trainer options",
        ) from problem


def _write_counters(path: Path, counters: Mapping[str, Any]) -> None:
    text = json.dumps({"format": _FORMAT, **counters}, indent=2)
    (path / _COUNTERS).write_text(text + "\n", encoding="utf-8")


def _read_counters(path: Path) -> dict[str, Any]:
    counters: dict[str, Any] = json.loads((path / _COUNTERS).read_text(encoding="utf-8"))
    if counters["format"] != _FORMAT:
        raise CheckpointError(
            f"trainer state in {path} has format {counters['format']}, not {_FORMAT}",
            fix="resume with the version that wrote it",
        )
    return counters


def _adapter_scale(model: HeldModel) -> float | None:
    return None if model.adapter is None else model.adapter.meta.scale


def _check_adapter(saved: float | None, own: float | None) -> None:
    if saved != own:
        told = [f"an adapter of scale {scale}" if scale else "no adapter" for scale in (saved, own)]
        raise ValueError(f"it has {told[0]}, this trainer {told[1]}")


@torch.no_grad()
def _load_weights(files: Iterable[Path], weights: Mapping[str, torch.Tensor]) -> None:
    """Copy the files' tensors into ``weights``; others in the files are left alone."""
    missing = set(weights)
    for path in files:
        with safe_open(path, framework="pt") as file:
            for name in set(file.keys()) & missing:
                weights[name].copy_(file.get_tensor(name))
                missing.discard(name)
    if missing:
        raise KeyError(f"{len(missing)} weights are missing, first {min(missing)}")


def _export(model: HeldModel, target: Path) -> None:
    """Weights, config and the tokenizer of the folder it was loaded from."""
    target.mkdir()
    save_model(model.net, target, model.weights())
    for file in sorted(model.spec.path.iterdir()):
        wanted = file.is_file() and not file.name.endswith(_NOT_TOKENIZER)
        wanted &= file.name != MANIFEST  # of the files over there
        if wanted and not (target / file.name).exists():
            shutil.copyfile(file, target / file.name)
