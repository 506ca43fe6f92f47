"""Estimators of KL(policy || base) from the log-probabilities of sampled tokens.

Formula, D = lp - base: ``k1 = D``, ``k2 = D^2 / 2``, ``k3 = exp(-D) - 1 + D``; D is clamped to
+-20 and 0 where masked. Source: J. Schulman, "Approximating KL Divergence" (2020). k1 and k3 are
unbiased as values; as a loss their gradients differ, k2's is the KL's own on policy.
Pinned by ``tests/ops/test_kl.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from axisrl.ops.ratio import log_ratio

Estimator = Literal["k1", "k2", "k3"]


def kl_estimate(
    logprobs_N: Tensor, base_logprobs_N: Tensor, mask_N: Tensor, estimator: Estimator
) -> Tensor:
    """(N,): the estimate at each trained token, 0 (value and gradient) elsewhere."""
    d_N = log_ratio(logprobs_N, base_logprobs_N, mask_N)
    if estimator == "k1":
        return d_N
    if estimator == "k2":
        return d_N.square() / 2
    return (-d_N).expm1() + d_N
