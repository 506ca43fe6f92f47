"""How a run that is asked to stop leaves what it is doing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """Somebody asked the run to stop; the state is at a border."""


async def unless_interrupted(interrupt: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work``, or cancel it and raise ``Interrupted`` when the run is asked to stop."""
    task, stop = asyncio.ensure_future(work), asyncio.ensure_future(interrupt.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Interrupted
    finally:
        stop.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
