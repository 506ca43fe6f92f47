"""A trainer backend that records its batches and moves eight numbers. It computes no loss and needs
no torch.

With ``model.head`` "value" token i has the value ``weights[i % 8]``, and a step moves it towards
the return.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axisrl.config.base import Config
from axisrl.errors import CheckpointError, ConfigError, EnvironmentProblem, RunFailed
from axisrl.protocols import ReadExperts, TrainerPart
from axisrl.protocols.loss import Loss
from axisrl.runtime.routing import has_experts
from axisrl.testing.fakes.tokenizer import CharTokenizer
from axisrl.testing.fakes.weights import weights_checksum
from axisrl.types import (
    BuildContext,
    FloatArray,
    Metric,
    ModelSpec,
    PackedBatch,
    StepStats,
    TensorMeta,
    WeightAck,
    WeightUpdate,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptedTrainerConfig(Config):
    """Options of :class:`ScriptedTrainer`."""

    learning_rate: float = 0.1
    """Falls linearly to 0 over the run's steps."""
    fail_at_step: int = 0
    """Raise at the so-manieth step; 0 is never."""


class ScriptedTrainer:
    """A :class:`axisrl.protocols.OffloadingTrainer` and
    :class:`axisrl.protocols.ReplayingTrainer` whose weights depend on every advantage and
    every earlier step."""

    provides: frozenset[str] = frozenset({"old_logprobs", "entropy", "values"})

    def __init__(
        self, config: ScriptedTrainerConfig | None = None, context: BuildContext | None = None
    ) -> None:
        self.config = config or ScriptedTrainerConfig()
        self.batches: list[tuple[PackedBatch, ...]] = []
        """The batches of each step."""
        self.losses: list[Loss] = []
        self.passes: Counter[str] = Counter()
        """Batches that went through each of ``logprobs``, ``values`` and ``step``."""
        self.updates: list[WeightUpdate] = []
        """What ``update_weights`` was given."""
        self.away: set[TrainerPart] = set()
        """What ``offload`` took and ``reload`` did not bring back."""
        self.replayed: list[NDArray[Any]] = []
        """Experts of the first layer, of each batch that had some."""
        self._read: ReadExperts | None = None
        self.model: ModelSpec | None = None
        self.frozen = False
        self.weights: FloatArray = np.zeros(8, np.float32)
        self.steps = 0
        self._momentum: FloatArray = np.zeros(8, np.float32)
        self._total = 1
        self._folder = (context.run_dir if context else Path()) / "scripted-weights"

    def start(self, model: ModelSpec, total_steps: int | None) -> None:
        """Nothing is loaded."""
        self.model = model
        self.frozen = total_steps is None
        self._total = max(total_steps or 0, 1)

    def replay_routing(self, read: ReadExperts) -> None:
        """They change nothing here."""
        self._read = read

    def _replay(self, batches: Sequence[PackedBatch]) -> None:
        for batch in batches:
            if self._read is not None and has_experts(batch):
                self.replayed.append(self._read(batch, (0, 1)).result(60.0))

    def logprobs(self, batches: Sequence[PackedBatch]) -> Sequence[FloatArray]:
        """``-log(vocabulary)`` where trained: what :class:`ScriptedEngine` says too."""
        self._must_have("weights")
        self.passes["logprobs"] += len(batches)
        self._replay(batches)
        uniform = -math.log(CharTokenizer.vocab_size)
        return [_where_trained(batch, np.float32(uniform)) for batch in batches]

    def values(self, batches: Sequence[PackedBatch]) -> Sequence[FloatArray]:
        """``weights[id % 8]`` where trained. Raises ``ConfigError`` without a value head."""
        self._must_have("weights")
        self.passes["values"] += len(batches)
        if not self._has_values:
            raise ConfigError("the scripted trainer was started without a value head")
        return [_where_trained(batch, self._values(batch)) for batch in batches]

    def step(self, batches: Sequence[PackedBatch], loss: Loss) -> StepStats:
        """Record, and move the weights along the weighted advantages of the trained tokens, or
        along what the values lack to the returns."""
        self._must_have("weights", "optimizer")
        self._must_train("step")
        self.steps += 1
        if self.steps == self.config.fail_at_step:
            raise RunFailed(f"scripted failure of step {self.steps}")
        self.passes["step"] += len(batches)
        self._replay(batches)
        self.batches.append(tuple(batches))
        self.losses.append(loss)
        gradient = np.zeros(8, np.float32)
        for batch in batches:
            mask = batch.columns["loss_mask"]
            at = batch.columns["ids" if self._has_values else "labels"][mask] % 8
            pull = self._wanted(batch)[mask] * batch.columns["weights"][mask]
            np.add.at(gradient, at, pull.astype(np.float32))
        rate = self.config.learning_rate * (1 - (self.steps - 1) / self._total)
        self._momentum = (np.float32(0.9) * self._momentum + gradient).astype(np.float32)
        self.weights = (self.weights + np.float32(rate) * self._momentum).astype(np.float32)
        return StepStats(
            metrics={"loss/total": Metric(value=-float(gradient.sum()))},
            tokens=sum(batch.tokens for batch in batches),
            trained_tokens=int(sum(batch.columns["loss_mask"].sum() for batch in batches)),
            learning_rate=rate,
            grad_norm=float(np.linalg.norm(gradient)),
        )

    @property
    def _has_values(self) -> bool:
        return self.model is not None and self.model.head == "value"

    def _values(self, batch: PackedBatch) -> FloatArray:
        values: FloatArray = self.weights[batch.columns["ids"] % 8]
        return values

    def _wanted(self, batch: PackedBatch) -> FloatArray:
        """Which way each token pulls, (N,)."""
        name = "returns" if self._has_values else "advantages"
        if name not in batch.columns:
            raise ConfigError(f"a packed batch has no column {name!r}")
        column: FloatArray = batch.columns[name]
        return column - self._values(batch) if self._has_values else column

    def _must_train(self, what: str) -> None:
        if self.frozen:
            raise EnvironmentProblem(f"a frozen scripted trainer has no {what}")

    def weight_update(self, version: int) -> WeightUpdate:
        """Write the weights as ``.npy`` in the run folder."""
        self._must_have("weights")
        self._must_train("weight update")
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{version}.npy"
        np.save(path, self.weights)
        return WeightUpdate(
            version=version,
            transport="disk",
            location=str(path),
            tensors=(TensorMeta(name="weights", shape=(8,), dtype="float32"),),
            checksum=weights_checksum(self.weights),
        )

    def update_weights(self, update: WeightUpdate) -> WeightAck:
        """Read the array that another one wrote and echo. Raises ``EnvironmentProblem`` unless it
        is frozen."""
        self._must_have("weights")
        if not self.frozen:
            raise EnvironmentProblem("a scripted trainer that trains takes no weights")
        self.updates.append(update)
        self.weights = np.load(Path(update.location), allow_pickle=False)
        return WeightAck(version=update.version, checksum=weights_checksum(self.weights))

    def offload(self, parts: Collection[TrainerPart]) -> None:
        """What needs them is refused (``RunFailed``) until ``reload``."""
        self.away.update(parts)

    def reload(self, parts: Collection[TrainerPart]) -> None:
        """Undo ``offload``."""
        self.away.difference_update(parts)

    def _must_have(self, *parts: TrainerPart) -> None:
        if missing := self.away.intersection(parts):
            raise RunFailed(f"{', '.join(sorted(missing))} of the scripted trainer are away")

    def save(self, path: Path) -> None:
        """``weights.npy`` and, unless it is frozen, ``momentum.npy`` and ``state.json``."""
        np.save(path / "weights.npy", self.weights)
        if self.frozen:
            return
        np.save(path / "momentum.npy", self._momentum)
        (path / "state.json").write_text(json.dumps({"steps": self.steps}), encoding="utf-8")

    def load(self, path: Path) -> None:
        """Inverse of ``save``. Raises ``CheckpointError`` when a file is missing."""
        try:
            self.weights = np.load(path / "weights.npy", allow_pickle=False)
            if self.frozen:
                return
            self._momentum = np.load(path / "momentum.npy", allow_pickle=False)
            state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        except FileNotFoundError as missing:
            raise CheckpointError(f"{missing.filename} is missing from the checkpoint") from missing
        self.steps = int(state["steps"])

    def stop(self) -> None:
        """Remove what ``weight_update`` wrote."""
        for path in self._folder.glob("*.npy"):
            path.unlink(missing_ok=True)  # another trainer of the run may have been first


def _where_trained(batch: PackedBatch, values: FloatArray | np.float32) -> FloatArray:
    """``values`` at trained tokens, 0 elsewhere."""
    return np.where(batch.columns["loss_mask"], values, 0).astype(np.float32)
