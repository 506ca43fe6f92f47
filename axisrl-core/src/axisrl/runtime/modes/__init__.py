"""What a run does, by its mode: loops over assembled parts, which the driver starts and ends.

Training, from rollouts or from saved data, is :mod:`axisrl.runtime.controller`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from axisrl.config.modes import Mode
from axisrl.runtime.controller import Controller
from axisrl.runtime.modes.evaluating import EvalLoop
from axisrl.runtime.modes.mismatch import MismatchLoop
from axisrl.runtime.modes.playing import RolloutLoop
from axisrl.runtime.parts import RunParts

__all__ = ["LOOPS", "RunLoop"]


class RunLoop(Protocol):
    """A mode at work."""

    parts: RunParts
    inside_window: bool
    """True while nothing may be saved."""

    async def run(self) -> None:
        """To the end. Raises ``Interrupted`` when asked to stop; the caller saves."""
        ...

    def report(self) -> Sequence[str]:
        """Lines for whoever started it, once it has ended."""
        ...


LOOPS: Mapping[Mode, Callable[[RunParts, asyncio.Event], RunLoop]] = {
    "train": Controller,
    "train_offline": Controller,
    "rollout": RolloutLoop,
    "eval": EvalLoop,
    "mismatch": MismatchLoop,
}
