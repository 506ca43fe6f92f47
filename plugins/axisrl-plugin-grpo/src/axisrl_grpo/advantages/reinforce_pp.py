"""The REINFORCE++ advantages: the reward, with or without the group's mean as a baseline, brought
to mean 0 and standard deviation 1 over the whole global batch.

They do not whiten: ``whiten`` tells the core to, since only the core sees the global batch.

Formula: ``A_i = r_i`` (``grpo/reinforce-pp``) or ``A_i = r_i - mean(r)``
(``grpo/reinforce-pp-baseline``, exactly 0 before whitening when all rewards are equal); then
``(A - mean) / std`` over the trained tokens of an update.
Source: REINFORCE++, arXiv 2501.03262.
Deviations: the KL penalty is the run's ``kl``, a term of the loss and no part of the reward.
Pinned by ``tests/advantages/test_reinforce_pp.py``.
"""

from __future__ import annotations

from axisrl.config.base import NoConfig
from axisrl.types import AdvantageResult, BuildContext, RolloutGroup, Values
from axisrl_grpo.advantages.rewards import (
    centred,
    checked_rewards,
    compared_rewards,
    one_scalar_each,
)


class ReinforcePpAdvantage:
    """The reward itself; a group of one will do."""

    group_relative = False
    needs_values = False
    whiten = True

    def __init__(self, config: NoConfig, context: BuildContext) -> None:
        pass

    def __call__(self, group: RolloutGroup, values: tuple[Values, ...] | None) -> AdvantageResult:
        """Each advantage is float32, shape (); ``values`` are not used.

        Raises ``RunFailed`` for a reward that is missing or not finite.
        """
        return one_scalar_each(checked_rewards(group))


class ReinforcePpBaselineAdvantage:
    """The reward against the group's mean."""

    group_relative = True
    needs_values = False
    whiten = True

    def __init__(self, config: NoConfig, context: BuildContext) -> None:
        pass

    def __call__(self, group: RolloutGroup, values: tuple[Values, ...] | None) -> AdvantageResult:
        """Each advantage is float32, shape (); ``values`` are not used.

        Raises ``ConfigError`` for a group of one and ``RunFailed`` for a reward that is missing or
        not finite.
        """
        return one_scalar_each(centred(compared_rewards(group, "grpo/reinforce-pp-baseline")))
