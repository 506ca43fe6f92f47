"""``core/length``: a price on length, max(coef x min(0, free_tokens - n), -cap).

n counts the tokens the policy sampled in the whole rollout, over all turns and branches; what it
was shown is free. It judges nothing: beside a reward for being right it is a second entry of
``rewards``. Golden numbers: ``tests/builtin/test_length_reward.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from axisrl.builtin.config import LengthRewardConfig
from axisrl.protocols.verifier import Rollout
from axisrl.types import BuildContext, RewardResult, Verdict


class LengthReward:
    """See the module's docstring."""

    def __init__(self, config: LengthRewardConfig, context: BuildContext) -> None:
        self._config = config

    def __call__(self, rollout: Rollout, verdicts: Mapping[str, Verdict]) -> RewardResult:
        """See :meth:`axisrl.protocols.Reward.__call__`."""
        left = min(0, self._config.free_tokens - rollout.trace.sampled_tokens)
        return RewardResult(total=max(self._config.coef * left, -self._config.cap))
