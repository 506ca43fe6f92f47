"""``core/overlong``: the soft overlong punishment of DAPO (arXiv 2503.14476, section 3.4).

With n sampled tokens, L = max_tokens, C = cache_tokens: 0 for n <= L - C, ((L - C) - n) / C up to
n = L, -1 beyond; times ``penalty``. Deviations: n counts all turns and branches of a rollout, C = 0
is a step at L, and ``penalty`` scales it (1 in the paper). It judges nothing: it is a second entry
of ``rewards``. Golden numbers: ``tests/builtin/test_overlong_reward.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from axisrl.builtin.config import OverlongRewardConfig
from axisrl.protocols.verifier import Rollout
from axisrl.types import BuildContext, RewardResult, Verdict


class OverlongReward:
    """See the module's docstring."""

    def __init__(self, config: OverlongRewardConfig, context: BuildContext) -> None:
        self._config = config

    def __call__(self, rollout: Rollout, verdicts: Mapping[str, Verdict]) -> RewardResult:
        """See :meth:`axisrl.protocols.Reward.__call__`."""
        punishment = self._punishment(rollout.trace.sampled_tokens)
        return RewardResult(total=self._config.penalty * punishment)

    def _punishment(self, tokens: int) -> float:
        limit, ramp = self._config.max_tokens, self._config.cache_tokens
        if tokens <= limit - ramp:
            return 0.0
        return -1.0 if tokens > limit else (limit - ramp - tokens) / ramp
