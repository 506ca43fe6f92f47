"""Workers: rollout workers whose rollouts go on with another when one is gone.

1. A rollout of a worker that is gone is played again by its successor: its seed is its own, so it
   is the same rollout. From the third time on it is played beside no other one that was lost, so
   that the rollout that takes its workers down is found.
2. What a worker that is gone kept of a rollout that did not come home is freed: nobody else knows
   of it.
3. A rollout that took down ``ATTEMPTS`` workers is given up as ``harness_error``, and its task is
   quarantined: named once, and not played again in this run.
4. Whatever else a worker raises, and an answer that cannot be, costs that rollout alone
   (``harness_error``). Errors that are wrong for every rollout (a configuration, a plugin, a store
   that keeps nothing) end the run.

It does not choose tasks, and it replaces nobody: :mod:`axisrl.runtime.supervisor` does.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence

from axisrl.errors import ActorGone, AxisrlError
from axisrl.protocols import HandleStore
from axisrl.runtime.rollout import RolloutRequest
from axisrl.runtime.supervisor import Post
from axisrl.runtime.thin import short_error
from axisrl.types import Outcome, RolloutSummary

_LOGGER = logging.getLogger("axisrl.workers")
ATTEMPTS = 3
"""Workers that one rollout may take down."""


class Workers:
    """Belongs to one event loop."""

    def __init__(self, posts: Sequence[Post], store: HandleStore | None = None) -> None:
        """``store``: where they keep arrays; None for workers that keep none."""
        self._posts = posts
        self._store = store
        self._alone = [asyncio.Lock() for _ in posts]
        self._quarantined: set[str] = set()
        self.reissued = 0
        """Rollouts that were played again."""

    @property
    def quarantined(self) -> list[str]:
        """Ids of tasks that are not played any more."""
        return sorted(self._quarantined)

    def quarantine(self, tasks: Iterable[str]) -> None:
        """Play these tasks no more."""
        self._quarantined.update(tasks)

    async def play(self, request: RolloutRequest) -> RolloutSummary:
        """Play one rollout, whichever workers that takes. A group stays on one slot."""
        slot = request.group % len(self._posts)
        for attempt in range(ATTEMPTS):
            self.reissued += attempt > 0
            if attempt < ATTEMPTS - 1:
                summary = await self._once(request, self._posts[slot])
            else:
                async with self._alone[slot]:
                    summary = await self._once(request, self._posts[slot])
            if summary is not None:
                return summary
            if self._store is not None:
                await self._store.release_owner(request.owner(slot))
        self._quarantined.add(request.task.id)
        _LOGGER.warning(
            "task %s is quarantined: its rollout took down %d workers", request.task.id, ATTEMPTS
        )
        return _lost(request, f"it took down {ATTEMPTS} workers")

    async def _once(self, request: RolloutRequest, post: Post) -> RolloutSummary | None:
        """None when the worker is gone; another one is there then."""
        if request.task.id in self._quarantined:
            return _lost(request, "its task is quarantined")
        worker = post.handle
        try:
            summary: RolloutSummary = await worker.call("play", request)
        except ActorGone:
            await post.successor(worker)
            return None
        except AxisrlError:
            raise
        except Exception as error:  # noqa: BLE001 - anything may break while foreign code plays
            return _lost(request, f"{post.name} raised {type(error).__name__}: {error}")
        if wrong := _impossible(summary, request):
            return _lost(request, f"{post.name} answered with {wrong}")
        return summary


def _impossible(answer: object, request: RolloutRequest) -> str:
    """What is wrong with a worker's answer; empty when nothing is."""
    if not isinstance(answer, RolloutSummary):
        return f"a {type(answer).__name__}, which is no summary"
    asked, got = (
        (request.id, request.group, request.member),
        (answer.id, answer.group, answer.member),
    )
    if asked != got:
        return f"{answer.id}, which was not asked for"
    if answer.reward is None:
        return "no reward for a rollout that ended well" if answer.outcome.trainable else ""
    if not math.isfinite(answer.reward):
        return f"the reward {answer.reward}"
    if not answer.outcome.trainable:
        return f"a reward for outcome {answer.outcome}"
    return "" if answer.trace else "a reward for a rollout without tokens"


def _lost(request: RolloutRequest, why: str) -> RolloutSummary:
    return RolloutSummary(
        id=request.id,
        task_id=request.task.id,
        group=request.group,
        member=request.member,
        outcome=Outcome.HARNESS_ERROR,
        reward=None,
        error=short_error(f"given up: {why}"),
    )
