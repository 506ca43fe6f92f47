"""Advantage: how much better than expected each trained token was."""

from __future__ import annotations

from typing import Protocol

from axisrl.types import AdvantageResult, RolloutGroup, Values


class Advantage(Protocol):
    """Computed a group at a time, on numpy, beside the trainer: rewards in, scalars (or one entry a
    trained token) out."""

    group_relative: bool
    """True when it compares the members of a group: a group of 1 is then a config error."""
    needs_values: bool
    """True when it is computed from a value model (``value:`` in the configuration)."""
    whiten: bool
    """True when the core shifts and scales the result to mean 0 and standard deviation 1 over the
    trained tokens of each update's whole batch."""

    def __call__(self, group: RolloutGroup, values: tuple[Values, ...] | None) -> AdvantageResult:
        """``values``: one a member where a value model exists, else None.

        ``returns`` are what a value model is trained towards: given whenever ``values`` are.
        """
        ...
