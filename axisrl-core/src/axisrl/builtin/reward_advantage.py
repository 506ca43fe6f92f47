"""``core/reward``: the advantage is the reward itself; no baseline, no group.

With ``grpo/reinforce`` it is plain policy gradient; with rewards of 0 and 1, rejection sampling.
Pinned by ``tests/builtin/test_reward_advantage.py``.
"""

from __future__ import annotations

import numpy as np

from axisrl.config.base import NoConfig
from axisrl.types import AdvantageResult, BuildContext, RolloutGroup, Values


class RewardAdvantage:
    """One scalar a member."""

    group_relative = False
    needs_values = False
    whiten = False

    def __init__(self, config: NoConfig, context: BuildContext) -> None:
        pass

    def __call__(self, group: RolloutGroup, values: tuple[Values, ...] | None) -> AdvantageResult:
        """See :meth:`axisrl.protocols.Advantage.__call__`; ``values`` are not used."""
        return AdvantageResult(advantages=tuple(np.asarray(reward) for reward in group.rewards))
