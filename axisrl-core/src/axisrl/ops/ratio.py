"""The probability ratio of policy-gradient losses, safe for any input.

It does not know about clipping rules or advantages: those differ from loss to loss.

Formula: ``d = clamp(lp - b, -20, 20)``, ``r = exp(d)``, both as if lp = b where masked (d = 0,
r = 1, no gradient). Deviation from the papers: the clamp, which keeps r below 4.9e8 and gives a
token whose log-ratio left the bounds no gradient. Pinned by ``tests/ops/test_ratio.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from axisrl.ops.masked import zero_masked
from axisrl.protocols import LossInputs

LOG_RATIO_BOUND = 20.0
Base = Literal["old", "rollout"]


def base_logprobs(batch: LossInputs, base: Base) -> Tensor:
    """What the ratio is measured from, (N,). Raises ``ValueError`` when ``old`` meets a batch
    without old log-probabilities (the loss did not say that it needs them)."""
    if base == "rollout":
        return batch.rollout_logprobs_N
    if batch.old_logprobs_N is None:
        raise ValueError("a loss with base: old was given a batch without old_logprobs")
    return batch.old_logprobs_N


def log_ratio(logprobs_N: Tensor, base_logprobs_N: Tensor, mask_N: Tensor) -> Tensor:
    """``d`` (N,): clamped ``logprobs_N - base_logprobs_N``, exactly 0 where ``mask_N`` is False."""
    current_N = zero_masked(logprobs_N, mask_N)
    base_N = zero_masked(base_logprobs_N, mask_N)
    return (current_N - base_N).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
