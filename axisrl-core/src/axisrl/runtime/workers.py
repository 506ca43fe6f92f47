"""Workers: rollout workers that are replaced when they die or hang, and whose rollouts go on.

1. A rollout of a worker that is gone is played again: its seed is its own, so it is the same
   rollout. From the second time on it is played beside no other one that was lost, so that the
   rollout that takes its workers down is found.
2. A rollout that took down ``attempts`` workers is given up as ``harness_error``, and its task is
   quarantined: named once, and not played again by this process.
3. A worker that does not answer for ``lease_s`` while it has rollouts is ended, like one that died.
4. The run ends once workers were replaced more often than its budget allows.

It does not choose tasks; and a worker in this process cannot die alone, so there it only plays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from axisrl.errors import ActorGone, RunFailed
from axisrl.runtime.actors import ActorHandle
from axisrl.runtime.rollout import RolloutRequest
from axisrl.types import Outcome, RolloutSummary

_LOGGER = logging.getLogger("axisrl.workers")
ATTEMPTS = 3
"""Workers that one rollout may take down."""


class Workers:
    """Belongs to one event loop."""

    def __init__(
        self,
        handles: Sequence[ActorHandle],
        hire: Callable[[int], Awaitable[ActorHandle]] | None = None,
        *,
        restarts: int = 0,
        lease_s: float = 60.0,
    ) -> None:
        """``hire(slot)`` makes a new worker; without it none is replaced or watched."""
        self._handles = list(handles)
        self._hire = hire
        self._restarts = restarts
        self._lease_s = lease_s
        self._locks = [asyncio.Lock() for _ in handles]
        self._alone = [asyncio.Lock() for _ in handles]
        self._busy = [0] * len(handles)
        self._watches: dict[int, asyncio.Task[None]] = {}
        self._quarantined: set[str] = set()
        self.reissued = 0
        """Rollouts that were played again."""
        self.replaced = 0
        """Workers that were."""

    async def play(self, request: RolloutRequest) -> RolloutSummary:
        """Play one rollout, whichever workers that takes. A group stays on one slot.

        Raises ``RunFailed`` when the budget of restarts is used up.
        """
        slot = request.group % len(self._handles)
        self._busy[slot] += 1
        self._watch(slot)
        try:
            return await self._played(request, slot)
        finally:
            self._busy[slot] -= 1

    async def _played(self, request: RolloutRequest, slot: int) -> RolloutSummary:
        for attempt in range(ATTEMPTS):
            if not attempt:
                summary = await self._once(request, slot)
            else:
                async with self._alone[slot]:
                    self.reissued += 1
                    summary = await self._once(request, slot)
            if summary is not None:
                return summary
        self._quarantined.add(request.task.id)
        _LOGGER.warning(
            "task %s is quarantined: its rollout took down %d workers", request.task.id, ATTEMPTS
        )
        return _lost(request, f"it took down {ATTEMPTS} workers")

    async def _once(self, request: RolloutRequest, slot: int) -> RolloutSummary | None:
        """None when the worker is gone; another one is there then."""
        if request.task.id in self._quarantined:
            return _lost(request, "its task is quarantined")
        worker = self._handles[slot]
        try:
            summary: RolloutSummary = await worker.call("play", request)
        except ActorGone as gone:
            await self._replace(slot, worker, gone)
            return None
        return summary

    async def _replace(self, slot: int, dead: ActorHandle, gone: ActorGone) -> None:
        async with self._locks[slot]:
            if self._handles[slot] is not dead:
                return  # somebody else's rollout was on it, too
            if self._hire is None or self.replaced >= self._restarts:
                raise RunFailed(
                    f"rollout worker {slot} is gone and rollout.worker_restarts {self._restarts} "
                    f"is used up: {gone.message}",
                    fix="see that process's log; raise rollout.worker_restarts if it may die",
                ) from gone
            self.replaced += 1
            _LOGGER.warning("rollout worker %d is replaced: %s", slot, gone.message)
            self._handles[slot] = await self._hire(slot)

    def _watch(self, slot: int) -> None:
        watched = self._watches.get(slot)
        if self._hire is not None and (watched is None or watched.done()):
            self._watches[slot] = asyncio.ensure_future(self._keep_alive(slot))

    async def _keep_alive(self, slot: int) -> None:
        """End a worker that does not answer while it has rollouts; they are then played again."""
        while self._busy[slot]:
            worker = self._handles[slot]
            try:
                async with asyncio.timeout(self._lease_s):
                    await worker.call("ping")
            except TimeoutError:
                _LOGGER.warning("rollout worker %d did not answer for %g s", slot, self._lease_s)
                worker.kill()
            except ActorGone:
                pass  # its rollouts know
            await asyncio.sleep(self._lease_s / 4)


def _lost(request: RolloutRequest, why: str) -> RolloutSummary:
    return RolloutSummary(
        id=request.id,
        task_id=request.task.id,
        group=request.group,
        member=request.member,
        outcome=Outcome.HARNESS_ERROR,
        reward=None,
        error=f"given up: {why}",
    )
