"""GSPO: PPO's clip on the ratio of a whole trajectory, the same for all its tokens.

A token's ratio is a sample of one; the geometric mean over the trajectory is what its reward was
given for. All rows of a trajectory must be in the batch (``level``).

Formula, per trained token t of trajectory j, with m_j the mean of ``lp - b`` over the trained
tokens of j: ``s_t = exp(min(lp - sg(lp) + sg(m_j), 10))``,
``L = max(-A s, -A clip(s, 1 - clip_low, 1 + clip_high))``. ``b`` is the old or the rollout
log-probability (``base``). By value s_t is the trajectory's ratio; its gradient is the token's own,
so advantages may differ from token to token (the paper's GSPO-token).
Source: GSPO, arXiv 2507.18071.
Deviations: the exponent is at most 10; a trajectory over it gets no gradient.
Pinned by ``tests/losses/test_gspo.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from torch import Tensor

from axisrl.ops.clip import ClipRange, clipped_ratio_loss, mismatch_stats, ratio_stats
from axisrl.ops.masked import zero_masked
from axisrl.ops.ratio import base_logprobs
from axisrl.ops.ratio_loss import RatioLoss
from axisrl.ops.trajectory import trajectory_mean
from axisrl.protocols import Level, LossInputs, LossResult
from axisrl.types import BuildContext
from axisrl_grpo.config import GspoLossConfig

_HIGHEST = 10.0


class GspoLoss(RatioLoss):
    """Per-token numerators; exactly 0, value and gradient, where masked."""

    level: Level = "trajectory"

    def __init__(self, config: GspoLossConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self._clip = ClipRange(config.clip_low, config.clip_high)

    def __call__(self, batch: LossInputs) -> LossResult:
        """See :meth:`axisrl.protocols.Loss.__call__`."""
        d_N = _sequence_log_ratio(batch, base_logprobs(batch, self._base))
        advantages_N = zero_masked(batch.advantages_N, batch.mask_N)
        loss_N, whole = clipped_ratio_loss(d_N, advantages_N, self._clip)
        clipped_N = whole["clip_fraction"].values_N
        stats = ratio_stats(self.log_ratio(batch), clipped_N) | mismatch_stats(batch)
        stats["sequence_ratio"] = whole["ratio"]
        stats["sequence_ratio_max"] = whole["ratio_max"]
        return LossResult(per_token_N=zero_masked(loss_N, batch.mask_N), stats=stats)


def _sequence_log_ratio(batch: LossInputs, base_N: Tensor) -> Tensor:
    gap_N = (batch.logprobs_N - base_N).detach()
    mean_N = trajectory_mean(gap_N, batch.mask_N, batch.trajectory_N)
    logprobs_N = zero_masked(batch.logprobs_N, batch.mask_N)
    return (logprobs_N - logprobs_N.detach() + mean_N).clamp(max=_HIGHEST)
