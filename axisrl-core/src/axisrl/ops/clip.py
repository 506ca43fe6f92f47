"""The clipped probability-ratio loss that PPO and GRPO share, and the statistics told about it.

Formula, per trained token, with ``d = clamp(lp - b, -20, 20)`` and ``r = exp(d)``:
``L = max(-A r, -A clip(r, 1 - low, 1 + high))``; with a dual clip c, where A < 0, ``min(L, -c A)``.
Sources: PPO, arXiv 1707.06347; dual clip, 1912.09729. Pinned by ``tests/ops/test_clip.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from axisrl.ops.masked import zero_masked
from axisrl.protocols import LossInputs, LossStat


class ClipRange(NamedTuple):
    """The ratio is clipped to [1 - low, 1 + high]; ``dual`` above 1, None is off."""

    low: float
    high: float
    dual: float | None = None


def clipped_ratio_loss(
    d_N: Tensor, advantages_N: Tensor, clip: ClipRange
) -> tuple[Tensor, dict[str, LossStat]]:
    """Numerators (N,) and statistics, from log-ratios and advantages that are 0 where masked."""
    ratio_N = d_N.exp()
    plain_N = -advantages_N * ratio_N
    bounded_N = -advantages_N * ratio_N.clamp(1 - clip.low, 1 + clip.high)
    clipped_N = bounded_N > plain_N
    # torch.maximum would halve the gradient where rounding makes the two equal beyond the range.
    loss_N = torch.where(clipped_N, bounded_N, plain_N)
    stats = ratio_stats(d_N, clipped_N)
    if clip.dual is not None:
        floor_N = -clip.dual * advantages_N
        dual_N = (advantages_N < 0) & (loss_N > floor_N)
        loss_N = torch.where(dual_N, floor_N, loss_N)
        stats["dual_clip_fraction"] = mean_stat(dual_N)
    return loss_N, stats


def ratio_stats(d_N: Tensor, clipped_N: Tensor) -> dict[str, LossStat]:
    """``ratio``, ``ratio_max``, ``clip_fraction`` and ``ppo_kl`` (k1, sampled from the base)."""
    ratio_N = d_N.detach().exp()
    return {
        "ratio": mean_stat(ratio_N),
        "ratio_max": LossStat(values_N=ratio_N, reduce="max"),
        "clip_fraction": mean_stat(clipped_N),
        "ppo_kl": mean_stat(-d_N),
    }


def mismatch_stats(batch: LossInputs) -> dict[str, LossStat]:
    """How far trainer and engine disagree about the same token under the same weights; nothing
    without old log-probabilities."""
    if batch.old_logprobs_N is None:
        return {}
    gap_N = zero_masked(batch.old_logprobs_N - batch.rollout_logprobs_N, batch.mask_N).abs()
    return {
        "mismatch": mean_stat(gap_N),
        "mismatch_max": LossStat(values_N=gap_N.detach(), reduce="max"),
    }


def mean_stat(values_N: Tensor) -> LossStat:
    """A detached per-token quantity, averaged; booleans become shares."""
    dtype = values_N.dtype if values_N.is_floating_point() else torch.float32
    return LossStat(values_N=values_N.detach().to(dtype))
