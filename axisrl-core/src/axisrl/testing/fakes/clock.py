"""A clock that moves only when it is told to. It makes no test slow: nothing really sleeps."""

from __future__ import annotations

import asyncio


class FakeClock:
    """Call it for the time (``BuildContext(clock=FakeClock())``); ``advance`` moves it and wakes
    sleepers."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def __call__(self) -> float:
        """Seconds."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Return once ``advance`` has moved the clock by ``seconds``; at once for 0 or less."""
        if seconds <= 0:
            return
        woken = asyncio.Event()
        self._sleepers.append((self._now + seconds, woken))
        await woken.wait()

    def advance(self, seconds: float) -> None:
        """Move on. The sleepers that are due run at the event loop's next turn."""
        self._now += seconds
        due = [woken for at, woken in self._sleepers if at <= self._now]
        self._sleepers = [(at, woken) for at, woken in self._sleepers if at > self._now]
        for woken in due:
            woken.set()
