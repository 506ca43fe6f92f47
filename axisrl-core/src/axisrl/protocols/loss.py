"""Loss: per-token numerators from log-probabilities. The trainer owns every denominator.

Shapes: ``N`` tokens of one packed batch. A loss returns what each token *would* lose; the trainer
multiplies by weights whose denominators cover the whole global batch, so neither the value nor the
gradient depends on micro-batches, packing, padding, order or ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from axisrl.types import Aggregation

if TYPE_CHECKING:
    from torch import Tensor

Level = Literal["token", "trajectory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """Label-aligned tensors (N,). Masked positions may hold anything, NaN included."""

    logprobs_N: Tensor
    """Under the current weights at the sampling temperature; carries the gradient. A value model
    has none: NaN there."""
    mask_N: Tensor
    """bool: True for trained tokens."""
    advantages_N: Tensor
    rollout_logprobs_N: Tensor
    trajectory_N: Tensor
    """int64: tokens of one trajectory share a number."""
    old_logprobs_N: Tensor | None = None
    """Before the window's updates; only when the loss needs "old_logprobs"."""
    reference_logprobs_N: Tensor | None = None
    """Under the frozen reference model; only when the loss needs "reference_logprobs"."""
    entropy_N: Tensor | None = None
    """Of the full next-token distribution; only when the loss needs "entropy"."""
    values_N: Tensor | None = None
    """Of the current value model; carries the gradient; only when the loss needs "values"."""
    old_values_N: Tensor | None = None
    """Before the window's updates."""
    returns_N: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LossStat:
    """A detached per-token quantity (N,), reduced over the trained tokens of the whole global
    batch."""

    values_N: Tensor
    reduce: Literal["mean", "sum", "min", "max"] = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class LossResult:
    """``per_token_N``: numerators, exactly 0 (value and gradient) where the mask is False."""

    per_token_N: Tensor
    stats: Mapping[str, LossStat] = field(default_factory=dict)


class Loss(Protocol):
    """``needs`` is checked against the backend before the first step; nothing that is not needed
    is computed."""

    needs: frozenset[str]
    """Subset of {"old_logprobs", "reference_logprobs", "entropy", "values"}. A loss of "values"
    trains a value model, every other one the policy."""
    level: Level
    """``trajectory`` when a token's numerator depends on the other tokens of its trajectory: its
    rows then share a packed batch."""
    aggregation: Aggregation
    """How tokens become one number: denominators are computed from it before the first
    micro-batch."""
    sequence_norm: int
    """Fixed length for ``sequence_mean_token_sum_norm``; ignored by the others."""

    def __call__(self, batch: LossInputs) -> LossResult:
        """The numerators of one packed batch."""
        ...
