"""When rollouts are played, beside the learning that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from axisrl.config.base import Config
from axisrl.config.use import at_least


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleConfig(Config):
    """Whether generation waits for learning."""

    short_form: ClassVar[str] = "kind"

    kind: Literal["sync", "async"] = "sync"
    """``sync``: each window is played with the weights it is learnt with. ``async``: rollouts are
    played while the trainer learns, ``max_staleness`` versions ahead at most."""
    max_staleness: int = 1
    """``async``: weight versions between a token and the update it is used in. No group is
    dispatched that would be older in its turn; a slow rollout's older tokens are dealt with as
    ``over_age`` says."""
    over_age: Literal["mask", "drop"] = "mask"
    """Older tokens are not trained on, or the whole rollout is left out; both are counted."""
    partial: Literal["off", "resume", "restart_turn"] = "off"
    """What a weight update does to the model calls that run. ``off`` waits for them; ``resume``
    interrupts them and goes on from their own tokens under the new weights; ``restart_turn`` says
    the turn again."""
    max_groups: int = 0
    """Groups being played or waiting for the trainer; 0 is bounded by ``max_staleness`` alone."""
    max_store_mib: int = 0
    """No further group is started while the store holds more; 0 is no bound."""

    def __post_init__(self) -> None:
        at_least(0, max_staleness=self.max_staleness, max_groups=self.max_groups)
        at_least(0, max_store_mib=self.max_store_mib)
