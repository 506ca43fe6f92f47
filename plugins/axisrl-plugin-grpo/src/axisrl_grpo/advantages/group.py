"""The group advantage: how much better a rollout did than the other rollouts of its task.

It does not use values, turns or lengths: all trained tokens of a rollout share one number.

Formula: ``A_i = clip((r_i - mean(r)) / (std(r) + eps), -clip, clip)``, std with ddof 1, eps 1e-6,
clip 5; exactly 0 for all when all rewards are equal.
Source: GRPO, arXiv 2402.03300.
Deviations: ddof 1 instead of 0; eps; the clip.
Pinned by ``tests/advantages/test_group.py``.
"""

from __future__ import annotations

from axisrl.types import AdvantageResult, BuildContext, RolloutGroup, Values
from axisrl_grpo.advantages.rewards import compared_rewards, one_scalar_each, standardised
from axisrl_grpo.config import GroupAdvantageConfig


class GroupAdvantage:
    """Advantages of one group, one scalar a member."""

    group_relative = True
    needs_values = False
    whiten = False

    def __init__(self, config: GroupAdvantageConfig, context: BuildContext) -> None:
        self._config = config

    def __call__(self, group: RolloutGroup, values: tuple[Values, ...] | None) -> AdvantageResult:
        """Each advantage is float32, shape (); ``values`` are not used.

        Raises ``ConfigError`` for a group of one and ``RunFailed`` for a reward that is missing or
        not finite.
        """
        rewards_G = compared_rewards(group, "grpo/group")
        return one_scalar_each(standardised(rewards_G, self._config.eps, self._config.clip))
