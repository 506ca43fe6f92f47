"""CISPO, also known as TIS (truncated importance sampling): the policy gradient, weighted with a
clipped ratio.

The clip bounds how much a token counts and never silences it: rare tokens whose probability has
moved far go on learning, unlike under PPO's clip. TIS is the case without a lower bound
(``clip_low: 1.0``) and with the cap 1 + ``clip_high``.

Formula, per trained token: ``d = clamp(lp - b, -20, 20)``, ``r = exp(d)``,
``L = -A sg(clip(r, 1 - clip_low, 1 + clip_high)) lp``. ``b`` is the old or the rollout
log-probability (``base``).
Source: CISPO (MiniMax-M1), arXiv 2506.13585.
Deviations: d is clamped; the aggregation is not part of the loss.
Pinned by ``tests/losses/test_cispo.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from axisrl.ops.clip import mismatch_stats, ratio_stats
from axisrl.ops.ratio_loss import RatioLoss
from axisrl.protocols import LossInputs, LossResult
from axisrl.types import BuildContext
from axisrl_grpo.config import CispoLossConfig
from axisrl_grpo.policy_gradient import policy_gradient


class CispoLoss(RatioLoss):
    """Per-token numerators; exactly 0, value and gradient, where masked."""

    def __init__(self, config: CispoLossConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self._low, self._high = 1 - config.clip_low, 1 + config.clip_high

    def __call__(self, batch: LossInputs) -> LossResult:
        """See :meth:`axisrl.protocols.Loss.__call__`."""
        d_N = self.log_ratio(batch).detach()
        ratio_N = d_N.exp()
        weights_N = ratio_N.clamp(self._low, self._high)
        return LossResult(
            per_token_N=policy_gradient(batch, weights_N),
            stats=ratio_stats(d_N, weights_N != ratio_N) | mismatch_stats(batch),
        )
