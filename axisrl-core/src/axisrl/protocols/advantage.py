"""Advantage: how much better than expected each trained token was."""

from __future__ import annotations

from typing import Protocol

from axisrl.types import AdvantageResult, FloatArray, RolloutGroup


class Advantage(Protocol):
    """Computed a group at a time, on numpy, in the driver: rewards in, scalars (or one entry a
    trained token) out."""

    group_relative: bool
    """True when it compares the members of a group: a group of 1 is then a config error."""

    def __call__(
        self, group: RolloutGroup, values: tuple[FloatArray, ...] | None
    ) -> AdvantageResult:
        """``values``: one array (trained tokens,) a member where a value model exists, else
        None."""
        ...
