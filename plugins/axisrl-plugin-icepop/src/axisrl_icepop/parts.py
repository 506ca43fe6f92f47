"""What all corrections share: the log-ratio they look at and the two shapes of their result.

Formula: ``gap = lo - lr``, old (trainer) minus rollout (engine) log-probability of the sampled
token; 0 where masked. Everything is computed in float64 and detached: a long trajectory's sum, and
with it a decision at a threshold, does not depend on the order of its rows.

It holds no rule of its own. Pinned by ``tests/test_parts.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from axisrl.ops.clip import mean_stat
from axisrl.ops.masked import zero_masked
from axisrl.protocols import CorrectionResult, LossStat


def log_gap(old_logprobs_N: Tensor, rollout_logprobs_N: Tensor, mask_N: Tensor) -> Tensor:
    """``gap`` (N,), float64 and detached."""
    old_N = zero_masked(old_logprobs_N.detach(), mask_N).double()
    return old_N - zero_masked(rollout_logprobs_N.detach(), mask_N).double()


def dropping(kept_N: Tensor, mask_N: Tensor, dtype: torch.dtype) -> CorrectionResult:
    """Trained tokens without ``kept_N`` (bool) are left out; every weight is 1.

    ``kept`` is a share of all trained tokens.
    """
    kept_N = kept_N & mask_N
    return CorrectionResult(
        weights_N=torch.ones_like(mask_N, dtype=dtype),
        mask_N=kept_N,
        stats={"kept": mean_stat(kept_N)},
    )


def weighting(
    log_weights_N: Tensor, cap: float, mask_N: Tensor, dtype: torch.dtype
) -> CorrectionResult:
    """Trained tokens get ``min(exp(log_weights_N), cap)``, the others exactly 1; none is left
    out. ``capped`` is the share of trained tokens whose weight was cut."""
    weights_N = torch.where(mask_N, log_weights_N.exp().clamp(max=cap), 1.0).to(dtype)
    return CorrectionResult(
        weights_N=weights_N,
        mask_N=mask_N,
        stats={
            "weight": mean_stat(weights_N),
            "weight_max": LossStat(values_N=weights_N, reduce="max"),
            "capped": mean_stat((log_weights_N.exp() > cap) & mask_N),
        },
    )
