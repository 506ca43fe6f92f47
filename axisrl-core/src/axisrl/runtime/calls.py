"""Calls that have a deadline, to processes that answer alike.

1. The deadline is kept where the work is, so work that awaits is really cancelled.
2. :class:`PromptHandle` waits that long and a grace. A process that says nothing meanwhile is
   blocked by work that does not await: it is ended, so that another one takes its place.

Which process is called, and what is called again, is :mod:`axisrl.runtime.router`'s.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from axisrl.errors import ActorGone, ActorStuck, AxisrlError
from axisrl.runtime.actors import ActorHandle
from axisrl.runtime.router import ATTEMPTS

GRACE_S = 5.0
"""What a process gets beyond a call's deadline to say that it is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of something that has a name in the configuration."""

    name: str
    """A verifier, a reward, or a service's method."""
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    limit_s: float


class Answers(Protocol):
    """Who is called: a handle, or a router of several."""

    async def call(self, method: str, *args: Any) -> Any:
        """As :meth:`axisrl.runtime.actors.ActorHandle.call`."""
        ...


class PromptHandle:
    """An actor's handle that ends the actor when a :class:`Call` is not answered in time.

    Time counts from the actor's last answer to this process: one that is busy with many short
    calls is not blocked.
    """

    def __init__(
        self,
        handle: ActorHandle,
        grace_s: float = GRACE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._handle = handle
        self._grace_s = grace_s
        self._clock = clock
        self._heard = clock()

    @property
    def pid(self) -> int:
        """Process of the actor, on its machine."""
        return self._handle.pid

    async def call(self, method: str, *args: Any) -> Any:
        """The answer. Raises ``ActorStuck`` when there is none, and the actor was ended for it."""
        limits = [arg.limit_s for arg in args if isinstance(arg, Call)]
        work = self._handle.call(method, *args)
        return await (self._awaited(work, limits[0] + self._grace_s) if limits else work)

    def kill(self) -> None:
        """End the actor at once."""
        self._handle.kill()

    async def _awaited(self, work: Awaitable[Any], patience_s: float) -> Any:
        answer, sent = asyncio.ensure_future(work), self._clock()
        try:
            while not answer.done():
                left = max(sent, self._heard) + patience_s - self._clock()
                if left <= 0:
                    self.kill()
                    raise ActorStuck(f"an actor did not answer for {patience_s:g} s and was ended")
                await asyncio.wait([answer], timeout=left)
            self._heard = self._clock()
            return answer.result()
        finally:
            answer.cancel()


async def answered_by(members: Answers, what: str, call: Call, failure: type[AxisrlError]) -> Any:
    """What one of ``members`` answers. Raises ``failure``, saying that ``what`` took them down or
    gave no answer; what it raises on purpose passes."""
    try:
        return await members.call("answer", call)
    except ActorStuck as stuck:
        raise failure(
            f"{what} gave no answer within {call.limit_s:g} s and blocked its process, which was "
            "ended"
        ) from stuck
    except ActorGone as gone:
        raise failure(f"{what} took down {ATTEMPTS} processes") from gone
