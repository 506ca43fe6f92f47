"""The group advantage: how much better a rollout did than the other rollouts of its task.

It does not use values, turns or lengths: all trained tokens of a rollout share one number.

Formula: ``A_i = clip((r_i - mean(r)) / (std(r) + eps), -clip, clip)``, std with ddof 1, eps 1e-6,
clip 5; exactly 0 for all when all rewards are equal.
Source: GRPO, arXiv 2402.03300.
Deviations: ddof 1 instead of 0; eps; the clip; equal rewards are found by comparison, since the
mean of eight float rewards of 0.2 need not be 0.2.
Pinned by ``tests/test_advantage.py``.

Shape suffix: ``G`` members of one group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from axisrl.errors import ConfigError, RunFailed
from axisrl.types import AdvantageResult, BuildContext, FloatArray, RolloutGroup
from axisrl_grpo.config import GroupAdvantageConfig


class GroupAdvantage:
    """Advantages of one group, one scalar a member."""

    group_relative = True
    needs_values = False
    whiten = False

    def __init__(self, config: GroupAdvantageConfig, context: BuildContext) -> None:
        self._config = config

    def __call__(
        self, group: RolloutGroup, values: tuple[FloatArray, ...] | None
    ) -> AdvantageResult:
        """Each advantage is float32, shape (); ``values`` are not used.

        Raises ``ConfigError`` for a group of one and ``RunFailed`` for a reward that is missing or
        not finite.
        """
        rewards_G = _checked(group)
        advantages_G = self._normalise(rewards_G)
        return AdvantageResult(
            advantages=tuple(np.asarray(value, dtype=np.float32) for value in advantages_G)
        )

    def _normalise(self, rewards_G: NDArray[np.float64]) -> NDArray[np.float64]:
        if rewards_G.min() == rewards_G.max():
            return np.zeros_like(rewards_G)
        spread = rewards_G.std(ddof=1) + self._config.eps
        limit = self._config.clip
        scaled_G: NDArray[np.float64] = (rewards_G - rewards_G.mean()) / spread
        return scaled_G.clip(-limit, limit)


def _checked(group: RolloutGroup) -> NDArray[np.float64]:
    if len(group.members) < 2:
        raise ConfigError(
            f"grpo/group compares the members of a group, and the group of task {group.task_id} "
            f"has {len(group.members)}",
            fix="set rollout.group_size and rollout.min_group_size to 2 or more",
        )
    for member in group.members:
        if member.reward is None or not np.isfinite(member.reward):
            raise RunFailed(
                f"rollout {member.id} of task {group.task_id} has reward {member.reward}",
                fix="return a finite reward, or let a verifier that cannot judge set Verdict.error",
            )
    return group.rewards.astype(np.float64)
