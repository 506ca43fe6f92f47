"""The trainer's state on disk: safetensors for tensors, JSON for counters, nothing pickled.

::

    <path>/model/                  weights, config and tokenizer: a folder transformers loads
    <path>/optimizer.safetensors   moments and float32 master weights by Hugging Face names, states
                                   of torch's generators
    <path>/trainer.json            format, steps taken, updates applied

Of a frozen model there is the folder alone. Ranks put their parts together and rank 0 writes, so a
checkpoint has no layout: any number of ranks can load it. It does not make the folder durable or
mark it finished: the core's checkpoint does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load_file, save_file
from torch import Tensor

from axisrl.ops.adamw import Optimizer
from axisrl.ops.generators import Generators
from axisrl.ops.state_files import read_counters, reading, write_counters, writing
from axisrl_megatron.held import HeldModel
from axisrl_megatron.weights import FolderTensors

_FORMAT = 1
_MODEL, _TENSORS = "model", "optimizer.safetensors"
_GENERATORS = "rng"


class TrainerState(NamedTuple):
    """Everything a checkpoint of a trained model holds."""

    model: HeldModel
    optimizer: Optimizer
    generators: Generators

    def save(self, path: Path) -> None:
        """Write everything into ``path``. Raises ``OSError`` when the disk refuses."""
        counters = {"steps": self.optimizer.steps, "updates": self.optimizer.updates}
        weights = self.model.weights()
        tensors = _renamed(self.model, self.optimizer.tensors())
        if self.model.mesh.rank != 0:
            return
        with writing():
            self.model.export(path / _MODEL, weights)
            save_file(tensors | self.generators.tensors(), path / _TENSORS)
        write_counters(path, _FORMAT, counters)

    def load(self, path: Path) -> None:
        """Put back what :meth:`save` wrote. Raises ``CheckpointError`` when it does not fit the
        model or is damaged."""
        with reading(path):
            counters = read_counters(path, _FORMAT)
            _load_model(self.model, path)
            tensors = load_file(path / _TENSORS)
            self.optimizer.restore(
                _named_back(self.model, tensors),
                steps=counters["steps"],
                updates=counters["updates"],
            )
            self.generators.restore(tensors)


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
        model.load(folder)


def _renamed(model: HeldModel, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Optimizer state ``<kind>/<parameter>`` by Hugging Face names."""
    kinds: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        kind, _, parameter = name.partition("/")
        kinds[kind][parameter] = tensor
    return {
        f"{kind}/{name}": tensor.contiguous()
        for kind, ofkind in kinds.items()
        for name, tensor in model.renamed(ofkind).items()
    }


def _named_back(model: HeldModel, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Inverse of :func:`_renamed`."""
    found = {}
    for kind in {name.partition("/")[0] for name in tensors} - {_GENERATORS}:
        prefix = f"{kind}/"
        ofkind = {
            name.removeprefix(prefix): tensor
            for name, tensor in tensors.items()
            if name.startswith(prefix)
        }
        for parameter in model.parameters_of(ofkind):
            found[f"{kind}/{parameter}"] = model.named_back(parameter, ofkind)
    return found
