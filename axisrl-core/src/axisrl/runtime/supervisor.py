"""Supervisor: notices that an actor is gone or hangs, and has its place filled, or ends the work.

1. An actor whose process ended is found at once, by a call to it that never returns otherwise; one
   that does not answer for ``lease_s`` is ended and then counts as gone, too.
2. Where another one can take its place (:meth:`Supervisor.watch` with ``refill``), it does, and
   whoever waits at the :class:`Post` goes on with it. The loss of any other actor is raised by
   :meth:`Supervisor.guard`: the driver then takes the run back to its newest checkpoint.
3. Losses are paid for from one :class:`RestartBudget`, but for those that their callers pay for
   (:class:`Post`, ``pooled``).

It does not know what actors do. Actors in this process cannot be lost alone: nobody watches them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from axisrl.errors import ActorGone, AxisrlError, Irreplaceable, RunFailed
from axisrl.runtime.actors import ActorHandle
from axisrl.runtime.span import SpanHandle

T = TypeVar("T")
Refill = Callable[[], Awaitable[None]]
_LOGGER = logging.getLogger("axisrl.supervisor")


class RestartBudget:
    """How many actors may be lost between two checkpoints; a crash that repeats ends the run."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._spent = 0
        self.recoveries = Counter[str]()
        """What was done about losses since this process began, as in ``replaced_engine``."""

    def spend(self, loss: AxisrlError, recovery: str) -> None:
        """Pay for one loss. Raises ``RunFailed`` when nothing is left."""
        if self._spent >= self._limit:
            raise RunFailed(
                f"{loss.message}; placement.restarts {self._limit} is used up",
                fix="mend the cause (see that process's log), or raise placement.restarts",
            ) from loss
        self._spent += 1
        self.recoveries[recovery] += 1

    def refill(self) -> None:
        """The run got on: a newer checkpoint is written."""
        self._spent = 0


class Post:
    """A place for an actor. As a handle it means whoever holds the place at present."""

    def __init__(self, name: str, handle: ActorHandle, *, pooled: bool = False) -> None:
        """``name``: role and rank, as in ``engine 0``. ``pooled``: its callers end it when it does
        not answer in their time, and give up the call that takes it down; so it may be silent for
        longer than a lease, and its loss is not paid for."""
        self.name = name
        self.handle = handle
        self.pooled = pooled
        self._filled = asyncio.Event()

    @property
    def pid(self) -> int:
        """Process of the present holder, on its machine."""
        return self.handle.pid

    @property
    def members(self) -> Mapping[str, ActorHandle]:
        """Name in errors -> every actor of the present holder: one, or its parts on several
        machines."""
        if isinstance(self.handle, SpanHandle):
            return self.handle.named
        return {self.name: self.handle}

    def holds(self, actor: ActorHandle) -> bool:
        """Whether ``actor`` is a part of the present holder."""
        return isinstance(self.handle, SpanHandle) and actor in self.handle.parts

    async def call(self, method: str, *args: Any) -> Any:
        """Call the present holder; its loss is raised, and nothing is called again."""
        return await self.handle.call(method, *args)

    def kill(self) -> None:
        """End the present holder."""
        self.handle.kill()

    def fill(self, handle: ActorHandle) -> None:
        """Put a new actor in the place."""
        self.handle = handle
        self._filled.set()
        self._filled = asyncio.Event()

    async def successor(self, gone: ActorHandle) -> ActorHandle:
        """Who took the place of ``gone``, once somebody did; for ever, where nobody may:
        :meth:`Supervisor.guard` ends such waits."""
        while self.handle is gone:
            await self._filled.wait()
        return self.handle


class Supervisor:
    """Belongs to one event loop."""

    def __init__(self, budget: RestartBudget, lease_s: float, restart_s: float) -> None:
        """``restart_s``: how long a place may be empty before that is a loss of its own."""
        self.budget = budget
        self._lease_s = lease_s
        self._restart_s = restart_s
        self._alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watches: list[asyncio.Task[None]] = []

    def watch(self, post: Post, refill: Refill | None = None) -> None:
        """Watch a place from here on. ``refill`` fills it with a new actor that is ready to be
        called; without it the loss ends what is guarded."""
        self._watches.append(asyncio.ensure_future(self._keep(post, refill)))

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Do ``work``, unless an actor is lost that cannot be replaced: then ``work`` is cancelled
        and ``ActorGone`` raised, or ``RunFailed`` when the budget is used up."""
        task = asyncio.ensure_future(work)
        either: set[asyncio.Future[Any]] = {task, self._alarm}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._alarm.result()
            return await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Watch no longer; idempotent."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        self._watches.clear()
        self._alarm.cancel()

    async def _keep(self, post: Post, refill: Refill | None) -> None:
        try:
            while True:
                gone = await self._gone(post)
                if refill is None:
                    raise gone
                await self._refill(post, refill, gone)
        except Exception as error:  # noqa: BLE001 - whatever keeps a place empty ends the attempt
            if not self._alarm.done():
                self._alarm.set_exception(error)

    async def _refill(self, post: Post, refill: Refill, gone: ActorGone) -> None:
        dead, free = post.handle, post.pooled
        recovery = f"replaced_{post.name.partition(' ')[0]}"
        while post.handle is dead:
            if free:
                self.budget.recoveries[recovery] += 1
            else:
                self.budget.spend(gone, recovery)
            _LOGGER.warning("%s is replaced: %s", post.name, gone.message)
            try:
                async with asyncio.timeout(self._restart_s):
                    await refill()
            except Irreplaceable:
                raise
            except TimeoutError:
                late = f"{post.name} was not there again within {self._restart_s:g} s"
                gone, free = ActorGone(f"{late} (placement.restart_timeout_s)"), False
            except ActorGone as again:  # the new one, while it started
                gone, free = again, False

    async def _gone(self, post: Post) -> ActorGone:
        """Wait until the holder of a place is gone, and say how."""
        members = post.members
        watches = [asyncio.ensure_future(actor.call("stay")) for actor in members.values()]
        if not post.pooled:
            watches += [asyncio.ensure_future(self._asked(*named)) for named in members.items()]
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            await min(done, key=watches.index)
        except ActorGone as gone:
            post.kill()  # so that one that only seems gone does not go on beside its successor
            return gone
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
        return ActorGone(f"{post.name} ended")

    async def _asked(self, name: str, actor: ActorHandle) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 4)
            try:
                async with asyncio.timeout(self._lease_s):
                    await actor.call("ping")
            except TimeoutError:
                raise ActorGone(
                    f"{name} did not answer for placement.lease_s {self._lease_s:g} s",
                    fix="see that process's log; raise placement.lease_s if it may be so busy",
                ) from None
