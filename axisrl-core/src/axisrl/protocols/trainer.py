"""TrainerBackend: holds the master weights of a policy, a value model or a frozen model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from axisrl.protocols.loss import Loss
from axisrl.types import (
    FloatArray,
    ModelSpec,
    PackedBatch,
    Ranks,
    Share,
    StepStats,
    WeightAck,
    WeightUpdate,
)


class TrainerBackend(Protocol):
    """One per trainer rank and model. Knows nothing of rewards, groups or algorithms."""

    provides: frozenset[str]
    """What it can compute for a loss: subset of {"old_logprobs", "entropy", "values"}."""

    def start(self, model: ModelSpec, total_steps: int | None) -> None:
        """Load the model and make the optimizer; ``total_steps`` sizes the learning-rate schedule.

        None is a frozen model (a reference, a teacher): no optimizer and no gradient; ``step`` is
        never called, ``update_weights`` may be.
        """
        ...

    def logprobs(self, batches: Sequence[PackedBatch]) -> Sequence[FloatArray]:
        """Log-probability of each label at its temperature, one array (N,) a batch, 0 where
        masked; no gradient."""
        ...

    def values(self, batches: Sequence[PackedBatch]) -> Sequence[FloatArray]:
        """With ``model.head`` "value": V of the state each label follows, one array (N,) a batch, 0
        where masked; no gradient. Temperature does not touch it."""
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

    def update_weights(self, update: WeightUpdate) -> WeightAck:
        """Replace a frozen model's weights by another trainer's and echo the version and the
        checksum of what it now holds."""
        ...

    def save(self, path: Path) -> None:
        """Write model, optimizer, scheduler and RNG state into the (existing, empty) folder; of a
        frozen model its weights alone."""
        ...

    def load(self, path: Path) -> None:
        """Inverse of ``save``; afterwards every further step is bit-identical to never having
        stopped."""
        ...

    def stop(self) -> None:
        """Free the model and what ``weight_update`` left behind; idempotent."""
        ...


@runtime_checkable
class DataParallelTrainer(TrainerBackend, Protocol):
    """A trainer that can be one of several ranks of one model: each computes the gradient of its
    share of the batches, all apply the sum."""

    def join(self, ranks: Ranks) -> Share:
        """Be one of ``ranks.size`` from the next ``start`` on; called before it, on every rank.
        Returns which batches this rank will be given. Raises ``ConfigError`` when so many ranks
        cannot train together.

        1. Every rank starts the same model, and makes every ``step`` (with no trained token in its
           batches, too): a step waits for the others. ``RankLost`` when one is gone, or later than
           ``timeout_s``.
        2. After a step all ranks hold the same weights (of the model they divide: their parts of
           them), bit for bit; clipping and the ``StepStats`` are of the gradient and the batches of
           all.
        3. ``logprobs`` and ``values`` are each share's own: its ranks are all asked, with the same
           batches. Where shares divide parts of the model they wait for each other: every rank is
           asked as often as the others, if only with no batches.
        4. Where every rank is ``Share.whole``, rank 0 alone is asked for a ``weight_update`` and,
           unless they ``divides_state``, to ``save``. Elsewhere all are: rank 0 writes, the others
           give it their parts. Every rank loads what was saved.
        """
        ...


ReadExperts = Callable[[PackedBatch, tuple[int, int]], Future[NDArray[Any]]]
"""Starts to read the experts that were kept of a batch's tokens in the layers ``[first, last)``, as
:func:`axisrl.runtime.routing.experts_of` tells them. Never called from an event loop."""


@runtime_checkable
class ReplayingTrainer(TrainerBackend, Protocol):
    """A trainer of mixtures of experts that chooses again what the engine's router chose (R3, arXiv
    2510.11370)."""

    def replay_routing(self, read: ReadExperts) -> None:
        """Do so from the next ``start`` on, in every pass (``logprobs`` and ``step``) of a batch
        with experts; called before it.

        1. The weights of the chosen experts are the trainer's own router's, and it learns.
        2. A token whose experts were not kept goes to those that the trainer's router chooses.
        3. A read that fails fails the pass, and experts of another model are a ``ConfigError``.
        4. ``loss/router_replay_fraction`` of the ``StepStats`` says of how many tokens they were
           kept.
        """
        ...
