"""``mode: eval``: one evaluation of the weights that are there, at step 0. Nothing is trained."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator, Mapping

from axisrl.runtime.interrupt import unless_interrupted
from axisrl.runtime.parts import RunParts


class EvalLoop:
    """A :class:`axisrl.runtime.modes.RunLoop`."""

    def __init__(self, parts: RunParts, interrupt: asyncio.Event) -> None:
        self.parts = parts
        self.interrupt = interrupt
        self.inside_window = False
        self._found: Mapping[str, float] = {}

    async def run(self) -> None:
        """Evaluate, unless a resumed run has already."""
        parts = self.parts
        if parts.state.pending is None:
            return
        self._found = await unless_interrupted(self.interrupt, parts.evaluate())
        parts.loggers.scalars(0, self._found)
        parts.state = dataclasses.replace(parts.state, pending=None)

    def report(self) -> list[str]:
        """What was measured, with its 95 % interval where there is one."""
        return list(_lines(self._found))


def _lines(found: Mapping[str, float]) -> Iterator[str]:
    for name, value in found.items():
        if f"{name}_low" in found:
            low, high = found[f"{name}_low"], found[f"{name}_high"]
            yield f"{name} {value:.4f}, 95 % interval [{low:.4f}, {high:.4f}]"
        elif name in ("eval/reward", "eval/failed_frac"):
            yield f"{name} {value:.4f}"
