"""RolloutPool: spreads groups over the rollout workers and brings them home in dispatch order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from axisrl.runtime.rollout import RolloutRequest
from axisrl.runtime.workers import Workers
from axisrl.types import RolloutSummary, SamplingParams, Task

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A task to play ``size`` times. ``number`` is its place in dispatch order."""

    number: int
    task: Task
    size: int


class RolloutPool:
    """Every group goes to one worker, chosen by its number: who plays what does not depend on
    timing."""

    def __init__(
        self,
        workers: Workers,
        on_finished: Callable[[RolloutSummary, int, int], None],
    ) -> None:
        """``on_finished`` hears of every rollout, and how many of how many have come home."""
        self._workers = workers
        self._on_finished = on_finished

    async def play(
        self, stream: Literal["train", "eval"], plans: Sequence[GroupPlan], sampling: SamplingParams
    ) -> list[list[RolloutSummary]]:
        """Play all members of all groups; the result is in the order of ``plans`` and members."""
        requests = [
            RolloutRequest(
                stream=stream, task=plan.task, group=plan.number, member=member, sampling=sampling
            )
            for plan in plans
            for member in range(plan.size)
        ]
        done = 0

        async def play_one(request: RolloutRequest) -> RolloutSummary:
            nonlocal done
            summary = await self._workers.play(request)
            done += 1
            self._on_finished(summary, done, len(requests))
            return summary

        flat = await gather_or_cancel([play_one(request) for request in requests])
        summaries = iter(flat)
        return [[next(summaries) for _ in range(plan.size)] for plan in plans]


async def gather_or_cancel(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """``asyncio.gather``, but the first error (or our own cancellation) ends the others before it
    is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
