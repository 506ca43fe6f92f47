"""TrainerBackend: holds the policy's master weights and its optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from axisrl.protocols.loss import Loss
from axisrl.types import FloatArray, ModelSpec, PackedBatch, StepStats, WeightUpdate


class TrainerBackend(Protocol):
    """One per trainer rank. Knows nothing of rewards, groups or algorithms."""

    provides: frozenset[str]
    """What it can compute for a loss: subset of {"old_logprobs", "entropy", "values"}."""

    def start(self, model: ModelSpec, total_steps: int) -> None:
        """Load the model and make the optimizer; ``total_steps`` sizes the learning-rate
        schedule."""
        ...

    def logprobs(self, batches: Sequence[PackedBatch]) -> Sequence[FloatArray]:
        """Log-probability of each label at its temperature, one array (N,) a batch, 0 where
        masked; no gradient."""
        ...

    def step(self, batches: Sequence[PackedBatch], loss: Loss) -> StepStats:
        """One optimizer step over all batches: sum over tokens of numerator x
        ``columns["weights"]``.

        A batch without "old_logprobs" given to a loss that needs them means "this is the first
        update of its window": the detached current log-probabilities are used, so the ratio is
        exactly 1.
        """
        ...

    def weight_update(self, version: int) -> WeightUpdate:
        """Offer the current weights as ``version``."""
        ...

    def save(self, path: Path) -> None:
        """Write model, optimizer, scheduler and RNG state into the (existing, empty) folder."""
        ...

    def load(self, path: Path) -> None:
        """Inverse of ``save``; afterwards every further step is bit-identical to never having
        stopped."""
        ...

    def stop(self) -> None:
        """Free the model and what ``weight_update`` left behind; idempotent."""
        ...
