"""Sequence mask: a trajectory that trainer and engine disagree about on average is left out.

Formula, per trajectory: kept iff ``low <= exp(mean over its trained tokens of (lo - lr)) <= high``.
Source: J. Liu, Y. Li et al., "When Speed Kills Stability: Demystifying RL Collapse from the
Training-Inference Mismatch" (September 2025), https://richardli.xyz/rl-collapse: masking by the
geometric mean of the ratios, which does not grow with the length.
Deviation: none. It reads the weights before the window's updates, so a window drops the same
trajectories in each of its updates.
Pinned by ``tests/corrections/test_sequence_mask.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from torch import Tensor

from axisrl.ops.trajectory import trajectory_mean
from axisrl.protocols import CorrectionResult, Level
from axisrl.types import BuildContext
from axisrl_icepop.config import SequenceMaskConfig
from axisrl_icepop.parts import dropping, log_gap


class SequenceMask:
    """Leaves whole trajectories out, by their mean."""

    level: Level = "trajectory"

    def __init__(self, config: SequenceMaskConfig, context: BuildContext) -> None:
        self._low, self._high = config.low, config.high

    def __call__(
        self,
        old_logprobs_N: Tensor,
        rollout_logprobs_N: Tensor,
        mask_N: Tensor,
        trajectory_N: Tensor,
    ) -> CorrectionResult:
        """See :meth:`axisrl.protocols.Correction.__call__`."""
        gap_N = log_gap(old_logprobs_N, rollout_logprobs_N, mask_N)
        ratio_N = trajectory_mean(gap_N, mask_N, trajectory_N).exp()
        kept_N = (ratio_N >= self._low) & (ratio_N <= self._high)
        return dropping(kept_N, mask_N, old_logprobs_N.dtype)
