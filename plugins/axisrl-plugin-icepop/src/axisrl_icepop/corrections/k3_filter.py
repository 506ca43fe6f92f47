"""k3 filter: tokens or trajectories over a bound on the estimated KL(rollout || trainer) are left
out.

Formula, per trained token: ``k3 = exp(lo - lr) - 1 - (lo - lr)``, which is k3 of
:mod:`axisrl.ops.kl` with the rollout as the policy that was sampled. Left out iff k3 > threshold,
or, at level ``trajectory``, iff the mean of k3 over the trajectory's trained tokens is.
Sources: J. Schulman, "Approximating KL Divergence" (2020); as a filter: the rejection options
``token_k3`` and ``seq_mean_k3`` of verl's rollout correction.
Deviation: the log-ratio is clamped to +-20.
Pinned by ``tests/corrections/test_k3_filter.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from axisrl.ops.kl import kl_estimate
from axisrl.ops.trajectory import trajectory_mean
from axisrl.protocols import CorrectionResult
from axisrl.types import BuildContext
from axisrl_icepop.config import K3FilterConfig
from axisrl_icepop.parts import dropping, log_gap


class K3Filter:
    """Leaves single tokens or whole trajectories out, as its ``level`` says."""

    def __init__(self, config: K3FilterConfig, context: BuildContext) -> None:
        self._threshold = config.threshold
        self.level = config.level

    def __call__(
        self,
        old_logprobs_N: Tensor,
        rollout_logprobs_N: Tensor,
        mask_N: Tensor,
        trajectory_N: Tensor,
    ) -> CorrectionResult:
        """See :meth:`axisrl.protocols.Correction.__call__`."""
        gap_N = log_gap(old_logprobs_N, rollout_logprobs_N, mask_N)
        k3_N = kl_estimate(-gap_N, torch.zeros_like(gap_N), mask_N, "k3")
        if self.level == "trajectory":
            k3_N = trajectory_mean(k3_N, mask_N, trajectory_N)
        return dropping(k3_N <= self._threshold, mask_N, old_logprobs_N.dtype)
