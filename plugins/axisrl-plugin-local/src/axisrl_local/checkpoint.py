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

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from axisrl.ops.adamw import Optimizer
from axisrl.ops.generators import Generators
from axisrl.ops.low_rank import check_scale
from axisrl.ops.state_files import read_counters, reading, write_counters, writing
from axisrl_local.folder import MANIFEST
from axisrl_local.held_model import HeldModel
from axisrl_local.load import save_model
from axisrl_local.weights_in import Received, WeightReceiver

_FORMAT = 1
_MODEL, _ADAPTER = "model", "adapter.safetensors"
_TENSORS = "optimizer.safetensors"
_NOT_TOKENIZER = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".h5", ".msgpack", ".index.json")


class TrainerState(NamedTuple):
    """Everything a checkpoint of a trained model holds."""

    model: HeldModel
    optimizer: Optimizer
    generators: Generators
    writes: bool = True
    """False of ranks that only give their part of a divided optimizer."""

    def save(self, path: Path) -> None:
        """Write everything into ``path``. Raises ``OSError`` when the disk refuses."""
        model, optimizer, generators, writes = self
        counters = {
            "steps": optimizer.steps,
            "updates": optimizer.updates,
            "adapter_scale": _adapter_scale(model),
        }
        tensors = {}
        for name, tensor in optimizer.saved():
            if writes:
                tensors[name] = tensor.cpu()
        if not writes:
            return
        with writing():
            _export(model, path / _MODEL)
            if model.adapter is not None:
                save_file(model.trained(), path / _ADAPTER)
            save_file(tensors | generators.tensors(), path / _TENSORS)
        write_counters(path, _FORMAT, counters)

    def load(self, path: Path) -> None:
        """Put back what :meth:`save` wrote. Raises ``CheckpointError`` when it does not fit the
        model or is damaged."""
        model, optimizer, generators, _ = self
        with reading(path):
            counters = read_counters(path, _FORMAT)
            check_scale(counters["adapter_scale"], _adapter_scale(model))
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
        with writing():
            _export(self.model, path / _MODEL)
        write_counters(path, _FORMAT, {"received": self.receiver.received._asdict()})

    def load(self, path: Path) -> None:
        """Put back what :meth:`save` wrote. Raises ``CheckpointError`` when it does not fit the
        model or is damaged."""
        with reading(path):
            received = read_counters(path, _FORMAT)["received"]
            self.receiver.expect(Received(tuple(received["adapted"]), received["replaced"]))
            files = sorted((path / _MODEL).glob("*.safetensors"))
            _load_weights(files, self.model.weights())


def _adapter_scale(model: HeldModel) -> float | None:
    return None if model.adapter is None else model.adapter.meta.scale


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
