"""Options of the corrections. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from axisrl.config.base import Config
from axisrl.protocols import Level


@dataclass(frozen=True, kw_only=True, slots=True)
class IcepopConfig(Config):
    """Options of ``icepop/icepop``."""

    low: float = 0.5
    """A token whose probability fell below this times the rollout's is left out."""
    high: float = 5.0
    """A token whose probability rose above this times the rollout's is left out."""

    def __post_init__(self) -> None:
        _require_band(self.low, self.high)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenTisConfig(Config):
    """Options of ``icepop/token-tis``."""

    cap: float = 2.0
    """Largest weight of a token."""

    def __post_init__(self) -> None:
        _require_cap(self.cap)


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceMaskConfig(Config):
    """Options of ``icepop/sequence-mask``."""

    low: float = 0.998
    """A trajectory whose geometric mean ratio a token is below this is left out."""
    high: float = 1.002
    """A trajectory whose geometric mean ratio a token is above this is left out."""

    def __post_init__(self) -> None:
        _require_band(self.low, self.high)


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceTisConfig(Config):
    """Options of ``icepop/sequence-tis``."""

    cap: float = 2.0
    """Largest weight of a trajectory."""
    geometric: bool = False
    """Mean of the tokens' log-ratios instead of their sum: the weight no longer shrinks or grows
    with the length."""

    def __post_init__(self) -> None:
        _require_cap(self.cap)


@dataclass(frozen=True, kw_only=True, slots=True)
class VetoConfig(Config):
    """Options of ``icepop/veto``."""

    threshold: float = 1e-4
    """A trajectory with a token whose probability fell below this times the rollout's is left
    out."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold {self.threshold} is not in (0, 1]")


@dataclass(frozen=True, kw_only=True, slots=True)
class K3FilterConfig(Config):
    """Options of ``icepop/k3-filter``."""

    threshold: float = 0.01
    """Largest k3, in nats a token; 0.01 is a log-ratio of about 0.14."""
    level: Level = "trajectory"
    """``token``: each token by its own k3. ``trajectory``: a whole trajectory by the mean over its
    trained tokens."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold < math.inf:
            raise ValueError(f"threshold {self.threshold} is not a finite number above 0")


def _require_band(low: float, high: float) -> None:
    if not 0 < low <= 1 <= high < math.inf:
        raise ValueError(
            f"low {low} must be in (0, 1] and high {high} finite and at least 1: a ratio of 1 is "
            "agreement and is never left out"
        )


def _require_cap(cap: float) -> None:
    if not 1 <= cap < math.inf:
        raise ValueError(
            f"cap {cap} must be finite and at least 1: the weight of agreement is 1 and is never "
            "cut"
        )
