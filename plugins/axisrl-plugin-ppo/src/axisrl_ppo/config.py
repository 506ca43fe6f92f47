"""Options of the advantage and the losses. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from axisrl.config.base import Config
from axisrl.config.losses import ClippedRatioLossConfig, LossConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class GaeConfig(Config):
    """Options of ``ppo/gae``."""

    gamma: float = 1.0
    """Discount of what comes one trained token later; 1 is none."""
    lam: float = 1.0
    """Lambda: 0 trusts the value model after one token, 1 waits for the rewards."""
    bootstrap_truncated: bool = False
    """A rollout that was cut off (``truncated``) is worth V of its last state from there on; False
    takes the cut for the end."""
    whiten: bool = True
    """Advantages of each update's whole batch are shifted and scaled to mean 0 and standard
    deviation 1; returns never are."""

    def __post_init__(self) -> None:
        for name, value in (("gamma", self.gamma), ("lam", self.lam)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} {value} is not in [0, 1]")


@dataclass(frozen=True, kw_only=True, slots=True)
class PpoLossConfig(ClippedRatioLossConfig):
    """Options of ``ppo/ppo``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueLossConfig(LossConfig):
    """Options of ``ppo/value``."""

    clip: float | None = 0.2
    """How far a value may move from the one before the window's updates before moving further
    earns nothing, in units of reward; null is off."""
    coef: float = 1.0
    """Factor of the loss."""

    def __post_init__(self) -> None:
        LossConfig.__post_init__(self)
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip {self.clip} must be above 0, or null to turn it off")
        if not self.coef > 0:
            raise ValueError(f"coef {self.coef} must be above 0")
