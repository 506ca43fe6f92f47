"""A trainer backend that records its batches and moves eight numbers. It computes no loss and needs
no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from axisrl.config.base import Config
from axisrl.errors import CheckpointError, RunFailed
from axisrl.protocols.loss import Loss
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
    """A :class:`axisrl.protocols.TrainerBackend` whose weights depend on every advantage and every
    earlier step."""

    provides: frozenset[str] = frozenset({"old_logprobs", "entropy", "values"})

    def __init__(
        self, config: ScriptedTrainerConfig | None = None, context: BuildContext | None = None
    ) -> None:
        self.config = config or ScriptedTrainerConfig()
        self.batches: list[tuple[PackedBatch, ...]] = []
        """The batches of each step."""
        self.losses: list[Loss] = []
        self.weights: FloatArray = np.zeros(8, np.float32)
        self.steps = 0
        self._momentum: FloatArray = np.zeros(8, np.float32)
        self._total = 1
        self._folder = (context.run_dir if context else Path()) / "scripted-weights"

    def start(self, model: ModelSpec, total_steps: int) -> None:
        """Nothing is loaded."""
        self._total = max(total_steps, 1)

    def logprobs(self, batches: Sequence[PackedBatch]) -> Sequence[FloatArray]:
        """``-log(vocabulary)`` where trained: what :class:`ScriptedEngine` says too."""
        uniform = -math.log(CharTokenizer.vocab_size)
        return [
            np.where(batch.columns["loss_mask"], uniform, 0).astype(np.float32) for batch in batches
        ]

    def step(self, batches: Sequence[PackedBatch], loss: Loss) -> StepStats:
        """Record, and move the weights along the weighted advantages of the trained tokens."""
        self.steps += 1
        if self.steps == self.config.fail_at_step:
            raise RunFailed(f"scripted failure of step {self.steps}")
        self.batches.append(tuple(batches))
        self.losses.append(loss)
        gradient = np.zeros(8, np.float32)
        for batch in batches:
            mask = batch.columns["loss_mask"]
            pull = batch.columns["advantages"][mask] * batch.columns["weights"][mask]
            np.add.at(gradient, batch.columns["labels"][mask] % 8, pull.astype(np.float32))
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

    def weight_update(self, version: int) -> WeightUpdate:
        """Write the weights as ``.npy`` in the run folder."""
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

    def save(self, path: Path) -> None:
        """``weights.npy``, ``momentum.npy`` and ``state.json``."""
        np.save(path / "weights.npy", self.weights)
        np.save(path / "momentum.npy", self._momentum)
        (path / "state.json").write_text(json.dumps({"steps": self.steps}), encoding="utf-8")

    def load(self, path: Path) -> None:
        """Inverse of ``save``. Raises ``CheckpointError`` when a file is missing."""
        try:
            self.weights = np.load(path / "weights.npy", allow_pickle=False)
            self._momentum = np.load(path / "momentum.npy", allow_pickle=False)
            state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        except FileNotFoundError as missing:
            raise CheckpointError(f"{missing.filename} is missing from the checkpoint") from missing
        self.steps = int(state["steps"])

    def stop(self) -> None:
        """Remove what ``weight_update`` wrote."""
        for path in self._folder.glob("*.npy"):
            path.unlink()
