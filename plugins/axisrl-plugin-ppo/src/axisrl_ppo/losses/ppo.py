"""The PPO policy loss: the clipped probability ratio.

It holds no value, KL or entropy term and no denominator: the value model has its own loss
(:mod:`axisrl_ppo.losses.value`), the aggregation it declares is the trainer's.

Formula, per trained token: ``d = clamp(lp - b, -20, 20)``, ``r = exp(d)``,
``L = max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))``; with ``dual_clip`` c (off), where A < 0,
``min(L, -c A)``. ``b`` is the old or the rollout log-probability (``base``).
Sources: PPO, arXiv 1707.06347; dual clip, 1912.09729.
Deviations: d is clamped; the two sides of the clip are set apart.
Pinned by ``tests/losses/test_ppo.py``.
"""

from __future__ import annotations

from axisrl.ops.ratio_loss import ClippedRatioLoss


class PpoLoss(ClippedRatioLoss):
    """Per-token numerators; exactly 0, value and gradient, where masked."""
