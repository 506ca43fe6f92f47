"""The GRPO policy loss: PPO's clipped probability ratio, with an optional dual clip.

It holds no KL or entropy term and no denominator: the aggregation it declares is the trainer's.

Formula, per trained token: ``d = clamp(lp - b, -20, 20)``, ``r = exp(d)``,
``L = max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))``; with ``dual_clip`` c, where A < 0,
``min(L, -c A)``. ``b`` is the old or the rollout log-probability (``base``).
Sources: PPO, arXiv 1707.06347; GRPO, 2402.03300; dual clip, 1912.09729.
Deviations: d is clamped; KL and aggregation are not part of the loss.
Pinned by ``tests/losses/test_grpo.py``.
"""

from __future__ import annotations

from axisrl.ops.ratio_loss import ClippedRatioLoss


class GrpoLoss(ClippedRatioLoss):
    """Per-token numerators; exactly 0, value and gradient, where masked."""
