"""Options of the advantages and the losses. Imports no torch.

What losses of several plugins share comes from :mod:`axisrl.config.losses`.
"""

from __future__ import annotations

from dataclasses import dataclass

from axisrl.config.base import Config
from axisrl.config.losses import ClippedRatioLossConfig, LossConfig, RatioLossConfig
from axisrl.types import Aggregation


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupAdvantageConfig(Config):
    """Options of ``grpo/group``."""

    eps: float = 1e-6
    """Added to the standard deviation, in units of reward; bounds what float noise can become."""
    clip: float = 5.0
    """Largest absolute advantage."""

    def __post_init__(self) -> None:
        if not self.eps > 0 or not self.clip > 0:
            raise ValueError(f"eps {self.eps} and clip {self.clip} must be above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnAdvantageConfig(GroupAdvantageConfig):
    """Options of ``grpo/turn``; ``eps`` and ``clip`` hold for each of its two parts."""

    coef: float = 1.0
    """Factor of a turn's own advantage beside the one of the whole rollout."""

    def __post_init__(self) -> None:
        GroupAdvantageConfig.__post_init__(self)
        if not self.coef > 0:
            raise ValueError(f"coef {self.coef} must be above 0; without turns use grpo/group")


@dataclass(frozen=True, kw_only=True, slots=True)
class GrpoLossConfig(ClippedRatioLossConfig):
    """Options of ``grpo/grpo``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundedRatioConfig(RatioLossConfig):
    """A policy loss whose ratio is clipped, without a dual clip."""

    clip_low: float = 0.2
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float = 0.2
    """The ratio is clipped above at 1 + clip_high."""

    def __post_init__(self) -> None:
        RatioLossConfig.__post_init__(self)
        _check_clip(self.clip_low, self.clip_high)


@dataclass(frozen=True, kw_only=True, slots=True)
class Grpo2LossConfig(BoundedRatioConfig):
    """Options of ``grpo/grpo2``."""

    soft_clip: float = 3.0
    """With a negative advantage a ratio above 1 weighs at most this much, and keeps its
    gradient."""

    def __post_init__(self) -> None:
        BoundedRatioConfig.__post_init__(self)
        if not self.soft_clip >= 1:
            raise ValueError(f"soft_clip {self.soft_clip} must be 1 or more: it caps ratios over 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class GspoLossConfig(BoundedRatioConfig):
    """Options of ``grpo/gspo``."""

    clip_low: float = 3e-4
    """The ratio of a trajectory is clipped below at 1 - clip_low."""
    clip_high: float = 4e-4
    """The ratio of a trajectory is clipped above at 1 + clip_high. A mean over many tokens moves
    far less than one token does, so both are far smaller than a token's."""
    aggregation: Aggregation = "sequence_mean_token_mean"
    """How tokens become one number; "sequence" means trajectory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CispoLossConfig(BoundedRatioConfig):
    """Options of ``grpo/cispo``."""

    clip_low: float = 1.0
    """The ratio is clipped below at 1 - clip_low; 1 sets no lower bound, as in the paper."""
    clip_high: float = 1.0
    """The ratio is clipped above at 1 + clip_high; 1 is truncated importance sampling's cap of
    2."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kimi25LossConfig(LossConfig):
    """Options of ``grpo/kimi2-5``; its ratio is always measured from the rollout."""

    clip_low: float = 0.5
    """A token whose ratio is below 1 - clip_low gets no gradient."""
    clip_high: float = 1.0
    """A token whose ratio is above 1 + clip_high gets no gradient."""

    def __post_init__(self) -> None:
        LossConfig.__post_init__(self)
        _check_clip(self.clip_low, self.clip_high)


def _check_clip(low: float, high: float) -> None:
    """Raise ``ValueError`` for a range that is none."""
    if not 0 <= low <= 1 or not high >= 0:
        raise ValueError(f"clip_low {low} must be in [0, 1] and clip_high {high} >= 0")
