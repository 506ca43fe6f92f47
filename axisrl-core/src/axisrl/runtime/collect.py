"""Collector: groups in, a training window out. Filters drop or keep, each with a counted reason.

It computes no advantage: that is done beside the trainer (:mod:`axisrl.runtime.credit`).

1. Tasks are dispatched until the window holds as many usable groups as its updates need.
2. A rollout that failed for reasons that are not the policy's leaves its group; the group goes on
   while ``min_group_size`` members remain. Nothing failed ever becomes reward 0.
3. dispatched = kept + dropped, for every window (``rollout/dropped_*``).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from axisrl.config.schema import RunConfig
from axisrl.errors import RunFailed
from axisrl.runtime.metrics import MetricWindow
from axisrl.runtime.pool import GroupPlan, RolloutPool
from axisrl.runtime.sampler import TaskSampler
from axisrl.runtime.thin import wire_bytes
from axisrl.types import Metric, RolloutGroup, RolloutSummary, SamplingParams

_MOST_ROUNDS = 20
"""Refills of one window before the run gives up: with every group dropped it would never end."""


@dataclass(slots=True)
class Window:
    """What one sync's worth of rollouts produced."""

    groups: list[RolloutGroup] = field(default_factory=list)
    played: list[RolloutSummary] = field(default_factory=list)
    """Every rollout, the unusable ones included, in dispatch order."""
    dropped: Counter[str] = field(default_factory=Counter)
    over_age: int = 0
    """Usable rollouts left out because a token of theirs was too old."""
    metrics: dict[str, float] = field(default_factory=dict)
    """What the source tells about itself."""

    def split(self, updates: int) -> list[list[RolloutGroup]]:
        """The groups of each optimizer step."""
        size = len(self.groups) // updates
        return [self.groups[i * size : (i + 1) * size] for i in range(updates)]


class WindowSource(Protocol):
    """Where windows come from; what it returns depends on its state alone."""

    version: int
    """Weight version that the engines serve; whoever syncs them sets it."""

    async def collect(self) -> Window:
        """The next window."""
        ...

    async def close(self) -> None:
        """End what still goes on; idempotent."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """JSON."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; an empty state is the beginning."""
        ...


class Collector:
    """Fills windows with rollouts of a task sampler's tasks."""

    def __init__(self, config: RunConfig, pool: RolloutPool, sampler: TaskSampler) -> None:
        self._config = config
        self._pool = pool
        self._sampler = sampler
        self._sampling = SamplingParams(**dataclasses.asdict(config.rollout.sampling))
        self.version = 0

    async def close(self) -> None:
        """Between two windows nothing goes on."""

    def state_dict(self) -> dict[str, Any]:
        """The sampler's."""
        return self._sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hand the tasks out that come after that state."""
        self._sampler.load_state_dict(state)

    async def collect(self) -> Window:
        """Play until the window is full. Raises ``RunFailed`` past ``max_failed_fraction``."""
        window, needed = Window(), self._config.groups_per_window
        for _ in range(_MOST_ROUNDS):
            plans = [self._plan() for _ in range(needed - len(window.groups))]
            for members in await self._pool.play("train", plans, self._sampling):
                window.played += members
                keep_group(members, self._config, window)
                rewards = [one.reward for one in members if one.reward is not None]
                self._sampler.observe(members[0].task_id, rewards)
            check_failures(window.played, self._config.rollout.max_failed_fraction)
            if len(window.groups) == needed:
                window.metrics = {f"sampler/{k}": v for k, v in self._sampler.metrics().items()}
                return window
        raise RunFailed(
            f"{_MOST_ROUNDS} rounds of tasks gave {len(window.groups)} of {needed} usable groups; "
            f"dropped: {dict(window.dropped)}",
            fix="easier tasks, or train.zero_std_groups: keep",
        )

    def _plan(self) -> GroupPlan:
        number = self._sampler.cursor
        return GroupPlan(
            number=number, task=self._sampler.take(), size=self._config.rollout.group_size
        )


class NoWindows:
    """The source of a run that plays held-out tasks alone."""

    version = 0

    async def collect(self) -> Window:
        """Raises ``RunFailed``."""
        raise RunFailed("a run without training tasks has no window of them")

    async def close(self) -> None:
        """Nothing goes on."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is nothing to go on from."""


def keep_group(members: Sequence[RolloutSummary], config: RunConfig, window: Window) -> None:
    """Add the usable members as a group to the window, or count why it is dropped."""
    usable = tuple(member for member in members if member.reward is not None)
    if len(usable) < config.rollout.min_group_size:
        window.dropped["too_few_usable"] += 1
        return
    group = RolloutGroup(group=members[0].group, task_id=members[0].task_id, members=usable)
    if config.train.zero_std_groups == "drop" and _is_flat(group):
        window.dropped["zero_std"] += 1
        return
    window.groups.append(group)


def check_failures(played: Sequence[RolloutSummary], limit: float) -> None:
    """Raise ``RunFailed`` with a table of causes when more than the share ``limit`` failed for
    reasons that are not the policy's."""
    failed = [one for one in played if one.reward is None]
    if len(failed) > limit * len(played):
        causes = Counter(f"{one.outcome}: {one.error}" for one in failed)
        table = "\n".join(f"  {count:5d} x {cause}" for cause, count in causes.most_common(8))
        raise RunFailed(
            f"{len(failed)} of {len(played)} rollouts failed, over "
            f"rollout.max_failed_fraction {limit:g}:\n{table}",
            fix="mend the first cause, or raise the limit",
        )


def window_metrics(window: Window, *, judged: bool = True) -> MetricWindow:
    """``reward/*`` and ``rollout/*`` of a window; ``judged`` is whether the run has a verifier.

    Failures are counted over all rollouts, everything else over the usable ones;
    ``zero_std_frac`` over the usable groups, dropped for it or not.
    """
    metrics, played = MetricWindow(), window.played
    for one in played:
        usable = one.reward is not None
        metrics.add("system/driver_bytes_per_rollout", Metric(value=wire_bytes(one)))
        metrics.add("rollout/failed_frac", Metric(value=float(not usable)))
        if one.reward is None:
            metrics.add(f"rollout/{one.outcome}", Metric(value=1.0, reduce="sum"))
            continue
        metrics.add("reward/mean", Metric(value=one.reward))
        metrics.add("reward/min", Metric(value=one.reward, reduce="min"))
        metrics.add("reward/max", Metric(value=one.reward, reduce="max"))
        for name, value in one.parts.items():
            metrics.add(f"reward/part/{name}", Metric(value=value))
        if judged:
            metrics.add("rollout/passed_frac", Metric(value=float(one.passed)))
        metrics.add("rollout/truncated_frac", Metric(value=float(one.outcome == "truncated")))
        metrics.add("rollout/policy_error_frac", Metric(value=float(one.outcome == "policy_error")))
        metrics.add("rollout/tokens_mean", Metric(value=one.sampled_tokens))
        metrics.add("rollout/tokens_max", Metric(value=one.sampled_tokens, reduce="max"))
        metrics.add("rollout/turns_mean", Metric(value=one.turns))
    for name, value in window.metrics.items():
        metrics.add(name, Metric(value=value))
    for group in window.groups:
        if len(group.members) > 1:  # one rollout has no variance to speak of
            metrics.add("rollout/zero_std_frac", Metric(value=float(_is_flat(group))))
    metrics.add("rollout/zero_std_frac", Metric(value=1.0, weight=window.dropped["zero_std"]))
    for reason, count in window.dropped.items():
        metrics.add(f"rollout/dropped_{reason}", Metric(value=count, reduce="sum"))
    return metrics


def _is_flat(group: RolloutGroup) -> bool:
    return bool(np.all(group.rewards == group.rewards[0]))
