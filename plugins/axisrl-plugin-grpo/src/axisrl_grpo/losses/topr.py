"""TOPR, tapered off-policy REINFORCE: plain policy gradient for good rollouts, a weight of at most
1 for bad ones.

Good rollouts are learnt from at full weight however unlikely they have become; bad ones fade as the
policy leaves them, so pushing them down stays bounded.

Formula, per trained token: ``A >= 0: L = -A lp``; ``A < 0: L = -A sg(clip(r, 0, 1)) lp``, with
``d = clamp(lp - b, -20, 20)``, ``r = exp(d)``. ``b`` is the old or the rollout log-probability
(``base``).
Source: TOPR, arXiv 2503.14286.
Deviations: the ratio is a token's instead of the whole answer's; d is clamped.
Pinned by ``tests/losses/test_topr.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

import torch

from axisrl.ops.clip import mismatch_stats, ratio_stats
from axisrl.ops.masked import zero_masked
from axisrl.ops.ratio_loss import RatioLoss
from axisrl.protocols import LossInputs, LossResult
from axisrl_grpo.policy_gradient import policy_gradient


class ToprLoss(RatioLoss):
    """Per-token numerators; exactly 0, value and gradient, where masked."""

    def __call__(self, batch: LossInputs) -> LossResult:
        """See :meth:`axisrl.protocols.Loss.__call__`."""
        d_N = self.log_ratio(batch).detach()
        ratio_N = d_N.exp()
        bad_N = zero_masked(batch.advantages_N, batch.mask_N) < 0
        weights_N = torch.where(bad_N, ratio_N.clamp(0, 1), torch.ones_like(ratio_N))
        return LossResult(
            per_token_N=policy_gradient(batch, weights_N),
            stats=ratio_stats(d_N, bad_N & (ratio_N > 1)) | mismatch_stats(batch),
        )
