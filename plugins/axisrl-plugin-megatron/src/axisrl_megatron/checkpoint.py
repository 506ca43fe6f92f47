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

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from axisrl.errors import CheckpointError
from axisrl.ops.adamw import Optimizer
from axisrl.ops.generators import Generators
from axisrl_megatron.held import HeldModel
from axisrl_megatron.weights import FolderTensors

_FORMAT = 1
_MODEL, _TENSORS, _COUNTERS = "model", "optimizer.safetensors", "trainer.json"
_GENERATORS = "rng"


class TrainerState(NamedTuple):
    """Everything a checkpoint of a trained model holds."""

    model: HeldModel
    optimizer: Optimizer
    generators: Generators

    def save(self, path: Path) -> None:
        """Write everything into ``path``. Raises ``OSError`` when the disk refuses."""
        counters = {
            "format": _FORMAT,
            "steps": self.optimizer.steps,
            "updates": self.optimizer.updates,
        }
        weights = self.model.weights()
        tensors = _renamed(self.model, self.optimizer.tensors())
        if self.model.mesh.rank != 0:
            return
        with _writing():
            self.model.export(path / _MODEL, weights)
            save_file(tensors | self.generators.tensors(), path / _TENSORS)
        (path / _COUNTERS).write_text(json.dumps(counters, indent=2) + "\n", encoding="utf-8")

    def load(self, path: Path) -> None:
        """Put back what :meth:`save` wrote. Raises ``CheckpointError`` when it does not fit the
        model or is damaged."""
        with _reading(path):
            counters = json.loads((path / _COUNTERS).read_text(encoding="utf-8"))
            if counters["format"] != _FORMAT:
                raise ValueError(f"its format is {counters['format']}, not {_FORMAT}")
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
        with _writing():
            self.model.export(path / _MODEL, self.model.weights())

    def load(self, path: Path) -> None:
        """Put back what :meth:`save` wrote. Raises ``CheckpointError`` when it does not fit the
        model or is damaged."""
        with _reading(path):
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
