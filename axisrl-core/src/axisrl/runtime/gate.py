"""Gate: lets calls in, and when it is shut, tells when the last one inside has come out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """Open at first. Belongs to one event loop."""

    def __init__(self) -> None:
        self._open, self._empty = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._empty.set()
        self._inside = 0

    @asynccontextmanager
    async def inside(self) -> AsyncIterator[None]:
        """Wait until the gate is open, and count as inside for the block."""
        await self._open.wait()
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @property
    def busy(self) -> bool:
        """Whether somebody is inside."""
        return self._inside > 0

    def shut(self) -> None:
        """Let nobody in from here on."""
        self._open.clear()

    async def empty(self) -> None:
        """Wait until nobody is inside."""
        await self._empty.wait()

    def open(self) -> None:
        """Let everybody in that waits."""
        self._open.set()
