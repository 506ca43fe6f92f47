"""Sequence TIS: truncated importance sampling, one weight a trajectory.

Formula, per trajectory: ``w = min(exp(sum over its trained tokens of (lo - lr)), cap)``; with
``geometric`` the mean instead of the sum.
Sources: J. Liu, Y. Li et al., "When Speed Kills Stability: Demystifying RL Collapse from the
Training-Inference Mismatch" (September 2025), https://richardli.xyz/rl-collapse; truncation: F. Yao
et al. (August 2025), https://fengyao.notion.site/off-policy-rl.
Deviation: none; nothing is clamped, since a sum that is too large meets the cap and one that is too
small is weight 0.
Pinned by ``tests/corrections/test_sequence_tis.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from torch import Tensor

from axisrl.ops.trajectory import trajectory_mean, trajectory_sum
from axisrl.protocols import CorrectionResult, Level
from axisrl.types import BuildContext
from axisrl_icepop.config import SequenceTisConfig
from axisrl_icepop.parts import log_gap, weighting


class SequenceTis:
    """Weights whole trajectories."""

    level: Level = "trajectory"

    def __init__(self, config: SequenceTisConfig, context: BuildContext) -> None:
        self._cap = config.cap
        self._reduce = trajectory_mean if config.geometric else trajectory_sum

    def __call__(
        self,
        old_logprobs_N: Tensor,
        rollout_logprobs_N: Tensor,
        mask_N: Tensor,
        trajectory_N: Tensor,
    ) -> CorrectionResult:
        """See :meth:`axisrl.protocols.Correction.__call__`."""
        gap_N = log_gap(old_logprobs_N, rollout_logprobs_N, mask_N)
        reduced_N = self._reduce(gap_N, mask_N, trajectory_N)
        return weighting(reduced_N, self._cap, mask_N, old_logprobs_N.dtype)
