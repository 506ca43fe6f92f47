"""An event loop whose clock jumps to the next thing that happens: hours of a simulated run in
seconds, the same every time. It runs coroutines that only sleep and wait for each other."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jump(selectors.SelectSelector):
    """Instead of waiting it moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits for somebody else: the simulation stands still")
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """``time()`` is simulated seconds since the loop was made."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        """Simulated seconds."""
        return self._jump.now


def run_virtual(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """The result of ``work``, and the simulated seconds it took."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work), loop.time()
    finally:
        loop.close()
