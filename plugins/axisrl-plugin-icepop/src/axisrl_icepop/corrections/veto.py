"""Veto: a trajectory with one token that the trainer finds all but impossible is left out.

Formula, per trajectory: left out iff ``min over its trained tokens of exp(lo - lr) < threshold``.
Source: the veto threshold of verl's rollout importance sampling, which accompanies J. Liu, Y. Li et
al., "When Speed Kills Stability: Demystifying RL Collapse from the Training-Inference Mismatch"
(September 2025), https://richardli.xyz/rl-collapse; 1e-4 is the value its documentation advises.
Deviation: none.
Pinned by ``tests/corrections/test_veto.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from torch import Tensor

from axisrl.ops.trajectory import trajectory_min
from axisrl.protocols import CorrectionResult, Level
from axisrl.types import BuildContext
from axisrl_icepop.config import VetoConfig
from axisrl_icepop.parts import dropping, log_gap


class Veto:
    """Leaves whole trajectories out, by their worst token."""

    level: Level = "trajectory"

    def __init__(self, config: VetoConfig, context: BuildContext) -> None:
        self._threshold = config.threshold

    def __call__(
        self,
        old_logprobs_N: Tensor,
        rollout_logprobs_N: Tensor,
        mask_N: Tensor,
        trajectory_N: Tensor,
    ) -> CorrectionResult:
        """See :meth:`axisrl.protocols.Correction.__call__`."""
        gap_N = log_gap(old_logprobs_N, rollout_logprobs_N, mask_N)
        lowest_N = trajectory_min(gap_N, mask_N, trajectory_N).exp()
        return dropping(lowest_N >= self._threshold, mask_N, old_logprobs_N.dtype)
