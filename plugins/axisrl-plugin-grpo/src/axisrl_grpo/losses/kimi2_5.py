"""The Kimi K2.5 loss: the policy gradient, weighted with a clipped ratio, for the tokens alone that
the clip leaves as they are.

The ratio is always measured from the rollout's log-probabilities, so it holds the mismatch between
engine and trainer; a token correction on top would count that twice and is refused before the run
starts (``axisrl_grpo.plugin.axisrl_config_resolved``).

Formula, per trained token: ``d = clamp(lp - lr, -20, 20)``, ``r = exp(d)``,
``w = clip(r, 1 - clip_low, 1 + clip_high)``, ``L = -A sg(w) lp``, with no gradient where
``|w - r| > 1e-5``.
Source: the Kimi K2.5 technical report (2026).
Deviations: d is clamped; the bounds stand on the ratio instead of its logarithm; KL and aggregation
are not part of the loss.
Pinned by ``tests/losses/test_kimi2_5.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from axisrl.ops.clip import mismatch_stats, ratio_stats
from axisrl.ops.ratio import log_ratio
from axisrl.protocols import Level, LossInputs, LossResult
from axisrl.types import BuildContext
from axisrl_grpo.config import Kimi25LossConfig
from axisrl_grpo.policy_gradient import policy_gradient

_MOVED = 1e-5


class Kimi25Loss:
    """Per-token numerators; exactly 0, value and gradient, where masked."""

    level: Level = "token"
    needs: frozenset[str] = frozenset()

    def __init__(self, config: Kimi25LossConfig, context: BuildContext) -> None:
        self._low, self._high = 1 - config.clip_low, 1 + config.clip_high
        self.aggregation = config.aggregation
        self.sequence_norm = config.sequence_norm

    def __call__(self, batch: LossInputs) -> LossResult:
        """See :meth:`axisrl.protocols.Loss.__call__`."""
        d_N = log_ratio(batch.logprobs_N, batch.rollout_logprobs_N, batch.mask_N).detach()
        ratio_N = d_N.exp()
        weights_N = ratio_N.clamp(self._low, self._high)
        stopped_N = (weights_N - ratio_N).abs() > _MOVED
        return LossResult(
            per_token_N=policy_gradient(batch, weights_N, stopped_N),
            stats=ratio_stats(d_N, stopped_N) | mismatch_stats(batch),
        )
