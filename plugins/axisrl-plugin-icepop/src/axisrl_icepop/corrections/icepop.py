"""IcePop: a token that trainer and engine disagree about is left out of the policy's loss.

Formula, per trained token: kept iff ``low <= exp(lo - lr) <= high``.
Source: Ling Team, "Every Step Evolves: Scaling Reinforcement Learning for Trillion-Scale Thinking
Model" (Ring-1T), arXiv 2510.18855; low 0.5 and high 5 are its bounds.
Deviation: the report multiplies the tokens it keeps by the ratio; here they keep weight 1, and the
report's own M(k) is this correction followed by ``icepop/token-tis`` with ``cap: 5``. A token that
is left out stays in every denominator, as in the report.
Pinned by ``tests/corrections/test_icepop.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from torch import Tensor

from axisrl.protocols import CorrectionResult, Level
from axisrl.types import BuildContext
from axisrl_icepop.config import IcepopConfig
from axisrl_icepop.parts import dropping, log_gap


class Icepop:
    """Leaves single tokens out."""

    level: Level = "token"

    def __init__(self, config: IcepopConfig, context: BuildContext) -> None:
        self._low, self._high = config.low, config.high

    def __call__(
        self,
        old_logprobs_N: Tensor,
        rollout_logprobs_N: Tensor,
        mask_N: Tensor,
        trajectory_N: Tensor,
    ) -> CorrectionResult:
        """See :meth:`axisrl.protocols.Correction.__call__`."""
        ratio_N = log_gap(old_logprobs_N, rollout_logprobs_N, mask_N).exp()
        kept_N = (ratio_N >= self._low) & (ratio_N <= self._high)
        return dropping(kept_N, mask_N, old_logprobs_N.dtype)
