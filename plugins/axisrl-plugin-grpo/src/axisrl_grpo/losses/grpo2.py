"""GRPO-2: the policy gradient, weighted with a ratio that is bounded in each of the four quadrants
of advantage and direction.

The outer bounds silence a token as PPO's clip does; a bad token that has become more likely is only
capped, so it keeps being pushed down.

Formula, per trained token: ``d = clamp(lp - b, -20, 20)``, ``r = exp(d)``, ``L = -A sg(w) lp`` with

- A >= 0, r > 1: ``w = min(r, 1 + clip_high)``, no gradient where clipped
- A >= 0, r <= 1: ``w = r``
- A < 0, r > 1: ``w = min(r, soft_clip)``, gradient kept
- A < 0, r <= 1: ``w = max(r, 1 - clip_low)``, no gradient where clipped

``b`` is the old or the rollout log-probability (``base``).
Sources: no paper of its own; PPO's clip, arXiv 1707.06347, on the constant-weight gradient of
CISPO, 2506.13585. Deviations: d is clamped.
Pinned by ``tests/losses/test_grpo2.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

import torch

from axisrl.ops.clip import mean_stat, mismatch_stats, ratio_stats
from axisrl.ops.masked import zero_masked
from axisrl.ops.ratio_loss import RatioLoss
from axisrl.protocols import LossInputs, LossResult
from axisrl.types import BuildContext
from axisrl_grpo.config import Grpo2LossConfig
from axisrl_grpo.policy_gradient import policy_gradient


class Grpo2Loss(RatioLoss):
    """Per-token numerators; exactly 0, value and gradient, where masked."""

    def __init__(self, config: Grpo2LossConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self._low, self._high = 1 - config.clip_low, 1 + config.clip_high
        self._soft = config.soft_clip

    def __call__(self, batch: LossInputs) -> LossResult:
        """See :meth:`axisrl.protocols.Loss.__call__`."""
        d_N = self.log_ratio(batch).detach()
        ratio_N = d_N.exp()
        bad_N = zero_masked(batch.advantages_N, batch.mask_N) < 0
        good_weights_N = ratio_N.clamp(max=self._high)
        bad_weights_N = ratio_N.clamp(self._low, self._soft)
        stopped_N = torch.where(bad_N, ratio_N < self._low, ratio_N > self._high)
        weights_N = torch.where(bad_N, bad_weights_N, good_weights_N)
        stats = ratio_stats(d_N, stopped_N) | mismatch_stats(batch)
        stats["soft_clip_fraction"] = mean_stat(bad_N & (ratio_N > self._soft))
        return LossResult(per_token_N=policy_gradient(batch, weights_N, stopped_N), stats=stats)
