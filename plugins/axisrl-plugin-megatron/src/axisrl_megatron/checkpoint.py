"""The trainer's state on disk: safetensors for tensors, JSON for counters, nothing pickled.

::

    <path>/model/                      weights, config and tokenizer: a folder transformers loads
    <path>/optimizer/00000.safetensors what rank 0 has of the moments and float32 master weights, by
                                       Hugging Face names, and states of torch's generators
    <path>/adapter/                    of a low-rank adapter: a folder that peft loads; ``model`` is
                                       merged
    <path>/trainer.json                format, steps taken, updates applied, files of the optimizer

Of a frozen model there is the folder alone. Each rank that has a part of the model writes its part
and says where it lies, so a checkpoint has no layout: any number of ranks can load it. It does not
make the folder durable or mark it finished: the core's checkpoint does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from axisrl.ops.adamw import Optimizer
from axisrl.ops.generators import Generators
from axisrl.ops.low_rank import FOLDER_PREFIX, check_scale, write_folder
from axisrl.ops.state_files import read_counters, reading, write_counters, writing
from axisrl_megatron.held import HeldModel
from axisrl_megatron.weights import FolderTensors, Part, write_parts

_FORMAT = 1
_MODEL, _ADAPTER, _OPTIMIZER = "model", "adapter", "optimizer"
_GENERATORS = "rng"


class TrainerState(NamedTuple):
    """Everything a checkpoint of a trained model holds."""

    model: HeldModel
    optimizer: Optimizer
    generators: Generators

    def save(self, path: Path) -> None:
        """Write this rank's part into ``path``. Raises ``OSError`` when the disk refuses."""
        mesh, first = self.model.mesh, self.model.mesh.rank == 0
        asked = first or mesh.layout.parts > 1
        weights = self.model.weights(on_host=True) if asked else {}
        factors = self.model.factors() if asked else {}
        own = mesh.layout.has_part(mesh.rank)
        parts = self._parts(keep=own) if own or self.optimizer.divided else []
        with writing():
            if first:
                self.model.export(path / _MODEL, weights)
                _write_adapter(self.model, path, factors)
            if own:
                (path / _OPTIMIZER).mkdir(exist_ok=True)
                file = path / _OPTIMIZER / f"{mesh.rank:05}.safetensors"
                write_parts(file, parts, self.generators.tensors() if first else {})
        if first:
            counters = {
                "steps": self.optimizer.steps,
                "updates": self.optimizer.updates,
                "adapter_scale": _scale(self.model),
            }
            write_counters(path, _FORMAT, counters | {"files": mesh.layout.parts})

    def _parts(self, *, keep: bool) -> list[Part]:
        """What this rank has, in host memory: no more than one tensor is whole on its device.
        Without ``keep`` it only gives others what they lack."""
        found = []
        for name, tensor in self.optimizer.saved():
            if not keep:
                continue
            kind, _, parameter = name.partition("/")
            for part in self.model.parts({parameter: tensor}):
                name, here = f"{kind}/{part.name}", part.tensor.cpu()
                found.append(part._replace(name=name, tensor=here))
        return found

    def load(self, path: Path) -> None:
        """Put back what :meth:`save` wrote. Raises ``CheckpointError`` when it does not fit the
        model or is damaged."""
        with reading(path):
            counters = read_counters(path, _FORMAT)
            check_scale(counters.get("adapter_scale"), _scale(self.model))
            there = len(list((path / _OPTIMIZER).glob("*.safetensors")))
            if there != counters["files"]:
                raise ValueError(f"{_OPTIMIZER} has {there} of {counters['files']} files")
            _load_model(self.model, path)
            with FolderTensors(path / _OPTIMIZER) as folder:
                self.optimizer.restore(
                    _Saved(self.model, folder),
                    steps=counters["steps"],
                    updates=counters["updates"],
                )
                self.generators.restore(
                    {name: folder(name) for name in folder.names if name.startswith(_GENERATORS)}
                )


class _Saved(Mapping[str, Tensor]):
    """The optimizer's tensors in a folder, shaped as this rank's parameters, each read when it is
    asked for: no process has room for all of them twice."""

    def __init__(self, model: HeldModel, folder: FolderTensors) -> None:
        self._model = model
        self._folder = folder

    def __getitem__(self, name: str) -> Tensor:
        kind, _, parameter = name.partition("/")
        return self._model.named_back(parameter, lambda one: self._folder(f"{kind}/{one}"))

    def __iter__(self) -> Iterator[str]:
        for kind in {name.partition("/")[0] for name in self._folder.names} - {_GENERATORS}:
            prefix = f"{kind}/"
            names = [n.removeprefix(prefix) for n in self._folder.names if n.startswith(prefix)]
            yield from (f"{prefix}{parameter}" for parameter in self._model.parameters_of(names))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class FrozenState(NamedTuple):
    """What a checkpoint of a frozen model holds."""

    model: HeldModel

    def save(self, path: Path) -> None:
        """Write the weights into ``path``. Raises ``OSError`` when the disk refuses."""
        with writing():
            self.model.export(path / _MODEL, self.model.weights())

    def load(self, path: Path) -> None:
        """Put back what :meth:`save` wrote. Raises ``CheckpointError`` when it does not fit the
        model or is damaged."""
        with reading(path):
            _load_model(self.model, path)


def _load_model(model: HeldModel, path: Path) -> None:
    with FolderTensors(path / _MODEL) as folder:
        if model.adapter is None:
            model.load(folder)
            return
        with FolderTensors(path / _ADAPTER) as factors:
            names = model.adapter.names
            model.load(lambda n: factors(f"{FOLDER_PREFIX}{n}") if n in names else folder(n))


def _write_adapter(model: HeldModel, path: Path, factors: Mapping[str, Tensor]) -> None:
    if model.adapter is not None:
        meta = model.adapter.meta
        ends = model.adapter.ends()
        write_folder(path / _ADAPTER, factors, rank=meta.rank, scale=meta.scale, targets=ends)


def _scale(model: HeldModel) -> float | None:
    return None if model.adapter is None else model.adapter.meta.scale
