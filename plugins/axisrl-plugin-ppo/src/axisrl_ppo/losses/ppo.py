"""The PPO policy loss: the clipped probability ratio.

It holds no value, KL or entropy term and no denominator: the value model has its own loss
(:mod:`axisrl_ppo.losses.value`), the aggregation it declares is the trainer's.

Formula, per trained token: ``d = clamp(lp - b, -20, 20)``, ``r = exp(d)``,
``L = max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))``; with ``dual_clip`` c (off), where A < 0,
``min(L, -c A)``. ``b`` is the old or the rollout log-probability (``base``).
Sources: PPO, arXiv 1707.06347; dual clip, 1912.09729.
Deviations: d is clamped; the two sides of the clip are set apart.
Pinned by ``tests/losses/test_ppo.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from axisrl.ops.clip import ClipRange, clipped_ratio_loss, mismatch_stats
from axisrl.ops.masked import zero_masked
from axisrl.ops.ratio import base_logprobs, log_ratio
from axisrl.protocols import Level, LossInputs, LossResult
from axisrl.types import BuildContext
from axisrl_ppo.config import PpoLossConfig


class PpoLoss:
    """Per-token numerators; exactly 0, value and gradient, where masked."""

    level: Level = "token"

    def __init__(self, config: PpoLossConfig, context: BuildContext) -> None:
        self._base = config.base
        self._clip = ClipRange(config.clip_low, config.clip_high, config.dual_clip)
        self.needs = frozenset({"old_logprobs"} if config.base == "old" else ())
        self.aggregation = config.aggregation
        self.sequence_norm = config.sequence_norm

    def __call__(self, batch: LossInputs) -> LossResult:
        """See :meth:`axisrl.protocols.Loss.__call__`."""
        d_N = log_ratio(batch.logprobs_N, base_logprobs(batch, self._base), batch.mask_N)
        advantages_N = zero_masked(batch.advantages_N, batch.mask_N)
        loss_N, stats = clipped_ratio_loss(d_N, advantages_N, self._clip)
        return LossResult(per_token_N=loss_N, stats=stats | mismatch_stats(batch))
