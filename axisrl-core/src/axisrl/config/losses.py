"""Options that policy and value losses of several plugins share, with what makes them wrong.

A loss's own config dataclass stands on one of these. A subclass with a ``__post_init__`` calls its
base's by name: ``super()`` does not work in a dataclass with slots. Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from axisrl.config.base import Config
from axisrl.types import Aggregation


@dataclass(frozen=True, kw_only=True, slots=True)
class LossConfig(Config):
    """How the tokens of any loss become one number."""

    aggregation: Aggregation = "token_mean"
    """How tokens become one number; "sequence" means trajectory."""
    sequence_norm: int = 0
    """Fixed length, in tokens, of ``sequence_mean_token_sum_norm``; only there."""

    def __post_init__(self) -> None:
        fixed_length = self.aggregation == "sequence_mean_token_sum_norm"
        if fixed_length and self.sequence_norm < 1:
            raise ValueError(f"aggregation {self.aggregation} needs sequence_norm, a length >= 1")
        if not fixed_length and self.sequence_norm:
            raise ValueError(
                f"sequence_norm {self.sequence_norm} has no effect with aggregation "
                f"{self.aggregation}; it belongs to sequence_mean_token_sum_norm"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class RatioLossConfig(LossConfig):
    """A policy loss made of probability ratios."""

    base: Literal["old", "rollout"] = "old"
    """What the ratio is measured from: the trainer's log-probabilities before the window's updates,
    or the ones recorded at sampling (no extra forward pass; the ratio then holds the mismatch
    between engine and trainer)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClippedRatioLossConfig(RatioLossConfig):
    """A policy loss whose ratio is clipped as PPO's (:mod:`axisrl.ops.clip`)."""

    clip_low: float = 0.2
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float = 0.2
    """The ratio is clipped above at 1 + clip_high; larger than clip_low is DAPO's "clip higher"."""
    dual_clip: float | None = None
    """With a negative advantage a token loses at most this times its size; above 1, null is off."""

    def __post_init__(self) -> None:
        RatioLossConfig.__post_init__(self)
        if not 0 <= self.clip_low <= 1 or not self.clip_high >= 0:
            raise ValueError(
                f"clip_low {self.clip_low} must be in [0, 1] and clip_high {self.clip_high} >= 0"
            )
        if self.dual_clip is not None and not self.dual_clip > 1:
            raise ValueError(f"dual_clip {self.dual_clip} must be above 1, or null to turn it off")
