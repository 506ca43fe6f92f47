"""The Dr. GRPO advantage: reward against the group's mean, without the standard deviation.

Dividing by the standard deviation gives tasks that are nearly always or nearly never solved more
weight than the others; this does not. The fixed length normaliser that the paper pairs it with is
the loss's ``aggregation: sequence_mean_token_sum_norm`` (preset ``grpo/dr-grpo``).

Formula: ``A_i = r_i - mean(r)``; exactly 0 for all when all rewards are equal.
Source: Dr. GRPO, arXiv 2503.20783. Deviations: none.
Pinned by ``tests/advantages/test_dr_grpo.py``.
"""

from __future__ import annotations

from axisrl.config.base import NoConfig
from axisrl.types import AdvantageResult, BuildContext, RolloutGroup, Values
from axisrl_grpo.advantages.rewards import centred, compared_rewards, one_scalar_each


class DrGrpoAdvantage:
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
        return one_scalar_each(centred(compared_rewards(group, "grpo/dr-grpo")))
