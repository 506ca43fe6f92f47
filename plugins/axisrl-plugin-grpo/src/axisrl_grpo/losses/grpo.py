"""The GRPO policy loss: PPO's clipped probability ratio, with an optional dual clip.

It holds no KL or entropy term and no denominator: the aggregation it declares is the trainer's.

Formula, per trained token: ``d = clamp(lp - b, -20, 20)``, ``r = exp(d)``,
``L = max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))``; with ``dual_clip`` c, where A < 0,
``min(L, -c A)``. ``b`` is the old or the rollout log-probability (``base``).
Sources: PPO, arXiv 1707.06347; GRPO, 2402.03300; dual clip, 1912.09729.
Deviations: d is clamped; KL and aggregation are not part of the loss.
Pinned by ``tests/losses/test_grpo.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from axisrl.ops.masked import zero_masked
from axisrl.ops.ratio import log_ratio
from axisrl.protocols import LossInputs, LossResult, LossStat
from axisrl.types import BuildContext
from axisrl_grpo.config import GrpoLossConfig


class GrpoLoss:
    """Per-token numerators; exactly 0, value and gradient, where masked."""

    def __init__(self, config: GrpoLossConfig, context: BuildContext) -> None:
        self._config = config
        self.needs = frozenset({"old_logprobs"} if config.base == "old" else ())
        self.aggregation = config.aggregation
        self.sequence_norm = config.sequence_norm

    def __call__(self, batch: LossInputs) -> LossResult:
        """Raises ``ValueError`` when ``base: old`` meets a batch without old log-probabilities."""
        d_N = log_ratio(batch.logprobs_N, self._base(batch), batch.mask_N)
        advantages_N = zero_masked(batch.advantages_N, batch.mask_N)
        ratio_N = d_N.exp()
        clipped_N = ratio_N.clamp(1 - self._config.clip_low, 1 + self._config.clip_high)
        plain_N, bounded_N = -advantages_N * ratio_N, -advantages_N * clipped_N
        loss_N = torch.maximum(plain_N, bounded_N)
        stats = _ratio_stats(d_N.detach(), (bounded_N > plain_N).detach())
        if self._config.dual_clip is not None:
            floor_N = -self._config.dual_clip * advantages_N
            dual_N = (advantages_N < 0) & (loss_N > floor_N)
            loss_N = torch.where(dual_N, floor_N, loss_N)
            stats["dual_clip_fraction"] = _mean(dual_N)
        return LossResult(
            per_token_N=zero_masked(loss_N, batch.mask_N), stats=stats | _mismatch_stats(batch)
        )

    def _base(self, batch: LossInputs) -> Tensor:
        if self._config.base == "rollout":
            return batch.rollout_logprobs_N
        if batch.old_logprobs_N is None:
            raise ValueError("grpo/grpo with base: old was given a batch without old_logprobs")
        return batch.old_logprobs_N


def _ratio_stats(d_N: Tensor, clipped_N: Tensor) -> dict[str, LossStat]:
    ratio_N = d_N.exp()
    return {
        "ratio": _mean(ratio_N),
        "ratio_max": LossStat(values_N=ratio_N, reduce="max"),
        "clip_fraction": _mean(clipped_N),
        # k1, sampled from the base: mean(base - current) estimates KL(base || current).
        "ppo_kl": _mean(-d_N),
    }


def _mismatch_stats(batch: LossInputs) -> dict[str, LossStat]:
    """How far trainer and engine disagree about the same token under the same weights."""
    if batch.old_logprobs_N is None:
        return {}
    gap_N = zero_masked(batch.old_logprobs_N - batch.rollout_logprobs_N, batch.mask_N).abs()
    return {
        "mismatch": _mean(gap_N),
        "mismatch_max": LossStat(values_N=gap_N.detach(), reduce="max"),
    }


def _mean(values_N: Tensor) -> LossStat:
    dtype = values_N.dtype if values_N.is_floating_point() else torch.float32
    return LossStat(values_N=values_N.detach().to(dtype))
