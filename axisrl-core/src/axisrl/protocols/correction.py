"""Correction: per-token weights from the gap between rollout and trainer log-probabilities;
composes with any loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from axisrl.protocols.loss import LossStat


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionResult:
    """``weights_N`` multiply the policy term; ``mask_N`` (bool) drops tokens from it. No
    denominator changes."""

    weights_N: Tensor
    mask_N: Tensor
    stats: dict[str, LossStat] = field(default_factory=dict)


class Correction(Protocol):
    """Identity where both log-probabilities agree; never unmasks; no gradient flows through it."""

    def __call__(
        self,
        train_logprobs_N: Tensor,
        rollout_logprobs_N: Tensor,
        mask_N: Tensor,
        trajectory_N: Tensor,
    ) -> CorrectionResult:
        """All (N,): tokens of one packed batch."""
        ...
