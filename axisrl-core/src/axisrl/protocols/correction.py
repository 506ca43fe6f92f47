"""Correction: per-token weights from the gap between rollout and trainer log-probabilities;
composes with any loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from axisrl.protocols.loss import Level

if TYPE_CHECKING:
    from torch import Tensor

    from axisrl.protocols.loss import LossStat


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionResult:
    """``weights_N`` multiply the policy term; ``mask_N`` (bool) drops tokens from it. No
    denominator changes."""

    weights_N: Tensor
    mask_N: Tensor
    stats: Mapping[str, LossStat] = field(default_factory=dict)
    """Over the original mask: a kept-rate is a share of all trained tokens."""


class Correction(Protocol):
    """Identity where both log-probabilities agree; never unmasks; no gradient flows through it.

    It depends on what was sampled and on the weights before the window's updates alone, so it is
    the same for every update of a window. Masked positions may hold anything, NaN included.
    """

    level: Level
    """``trajectory`` when a token's weight depends on the other tokens of its trajectory."""

    def __call__(
        self,
        old_logprobs_N: Tensor,
        rollout_logprobs_N: Tensor,
        mask_N: Tensor,
        trajectory_N: Tensor,
    ) -> CorrectionResult:
        """All (N,): tokens of one packed batch."""
        ...
