"""RolloutFlow: groups played without pause, beside the learning; windows of those that are done.

1. A group is started as soon as there is room: at version v at most
   ``(v + max_staleness + 1)`` windows of groups have been started that were not dropped, so none is
   too old in its turn (the capacity rule of AReaL, arXiv 2505.24298).
2. A window is the first groups that are home, whichever was started first.
3. started = trained + dropped + open. The open ones are in the state: a resumed run plays them
   again, and none is trained twice.

It does not mask tokens: the trainer does, by each token's version.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from typing import Any

from axisrl.config.schema import RunConfig
from axisrl.protocols import HandleStore
from axisrl.runtime.collect import Window, check_failures, keep_group
from axisrl.runtime.pool import GroupPlan, RolloutPool
from axisrl.runtime.sampler import TaskSampler
from axisrl.types import RolloutSummary, SamplingParams


class RolloutFlow:
    """A :class:`axisrl.runtime.collect.WindowSource` that never stops playing."""

    def __init__(
        self, config: RunConfig, pool: RolloutPool, sampler: TaskSampler, store: HandleStore
    ) -> None:
        self._config = config
        self._pool = pool
        self._sampler = sampler
        self._store = store
        self._sampling = SamplingParams(**dataclasses.asdict(config.rollout.sampling))
        self.version = 0
        """Weight version that the engines serve; whoever syncs them sets it."""
        self._started = 0
        """Groups started since the run began, less those dropped."""
        self._again: deque[int] = deque()
        """Numbers of groups that were open when the run was saved."""
        self._open: dict[int, int] = {}
        """Number of a group that is played or waits to be trained -> index of its task."""
        self._playing: set[asyncio.Task[list[RolloutSummary]]] = set()
        self._home: deque[list[RolloutSummary]] = deque()

    async def collect(self) -> Window:
        """The next window. Raises ``RunFailed`` past ``max_failed_fraction``."""
        window, needed = Window(), self._config.groups_per_window
        while len(window.groups) < needed:
            await self._start_groups()
            if not self._home:
                await self._first_home()
            members = self._home.popleft()
            window.played += members
            self._take(members, window)
            check_failures(window.played, self._config.rollout.max_failed_fraction)
        window.metrics = self._metrics(window)
        return window

    async def close(self) -> None:
        """Stop playing."""
        for task in self._playing:
            task.cancel()
        await asyncio.gather(*self._playing, return_exceptions=True)
        self._playing.clear()

    def state_dict(self) -> dict[str, Any]:
        """The sampler's, and every open group: its number and its task."""
        open_groups = [[number, index] for number, index in sorted(self._open.items())]
        return {**self._sampler.state_dict(), "open": open_groups, "started": self._started}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Play the groups that were open, then go on."""
        self._sampler.load_state_dict(state)
        self._started = state.get("started", 0)
        self._open = {number: index for number, index in state.get("open", ())}
        self._again = deque(self._open)

    async def _start_groups(self) -> None:
        while self._again or await self._has_room():
            if self._again:
                number = self._again.popleft()
                task = self._sampler.task(self._open[number])
            else:
                number = self._sampler.cursor
                self._open[number], task = self._sampler.draw()
                self._started += 1
            plan = GroupPlan(number=number, task=task, size=self._config.rollout.group_size)
            self._playing.add(asyncio.ensure_future(self._play(plan)))

    async def _play(self, plan: GroupPlan) -> list[RolloutSummary]:
        (members,) = await self._pool.play("train", [plan], self._sampling)
        return members

    async def _has_room(self) -> bool:
        schedule = self._config.schedule
        windows = self.version + schedule.max_staleness + 1
        if self._started >= windows * self._config.groups_per_window:
            return False
        if schedule.max_groups and len(self._open) >= schedule.max_groups:
            return False
        if not schedule.max_store_mib or not self._open:
            return True
        return (await self._store.stats()).bytes < schedule.max_store_mib << 20

    async def _first_home(self) -> None:
        done, self._playing = await asyncio.wait(self._playing, return_when=asyncio.FIRST_COMPLETED)
        # The order in which a set is walked is nobody's: groups that came at once go by number.
        self._home += sorted((task.result() for task in done), key=lambda home: home[0].group)

    def _take(self, members: list[RolloutSummary], window: Window) -> None:
        del self._open[members[0].group]
        rewards = [one.reward for one in members if one.reward is not None]
        self._sampler.observe(members[0].task_id, rewards)
        fresh = [one for one in members if not self._too_old(one)]
        window.over_age += len(members) - len(fresh)
        kept = len(window.groups)
        keep_group(fresh, self._config, window)
        self._started -= kept == len(window.groups)

    def _too_old(self, rollout: RolloutSummary) -> bool:
        schedule = self._config.schedule
        stale = self.version - rollout.versions[0] > schedule.max_staleness
        return stale and schedule.over_age == "drop"

    def _metrics(self, window: Window) -> dict[str, float]:
        behind = [self.version - m.versions[0] for g in window.groups for m in g.members]
        found = {f"sampler/{name}": value for name, value in self._sampler.metrics().items()}
        return found | {
            "rollout/staleness_mean": sum(behind) / len(behind),
            "rollout/staleness_max": float(max(behind)),
            "rollout/over_age_rollouts": float(window.over_age),
            "rollout/queue_open": float(len(self._playing)),
            "rollout/queue_home": float(len(self._home)),
        }
