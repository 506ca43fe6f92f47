"""The RLOO advantage: reward against the mean of the *other* rollouts of the task.

A rollout's own reward is no part of its baseline, so the baseline adds no bias; there is no
division by a standard deviation.

Formula: ``A_i = r_i - mean(r_j for j != i)``, which is ``G / (G - 1) (r_i - mean(r))`` and is
computed so; exactly 0 for all when all rewards are equal.
Source: RLOO, arXiv 2402.14740. Deviations: none.
Pinned by ``tests/advantages/test_rloo.py``.
"""

from __future__ import annotations

from axisrl.config.base import NoConfig
from axisrl.types import AdvantageResult, BuildContext, RolloutGroup, Values
from axisrl_grpo.advantages.rewards import centred, compared_rewards, one_scalar_each


class RlooAdvantage:
    """Advantages of one group, one scalar a member, in units of reward."""

    group_relative = True
    needs_values = False
    whiten = False

    def __init__(self, config: NoConfig, context: BuildContext) -> None:
        pass

    def __call__(self, group: RolloutGroup, values: tuple[Values, ...] | None) -> AdvantageResult:
        """Each advantage is float32, shape (); ``values`` are not used.

        Raises ``ConfigError`` for a group of one and ``RunFailed`` for a reward that is missing or
        not finite.
        """
        rewards_G = compared_rewards(group, "grpo/rloo")
        size = len(rewards_G)
        return one_scalar_each(centred(rewards_G) * (size / (size - 1)))
