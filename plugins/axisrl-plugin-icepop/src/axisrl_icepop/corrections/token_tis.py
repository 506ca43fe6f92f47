"""Token TIS: truncated importance sampling, one weight a token.

Formula, per trained token: ``w = min(exp(clamp(lo - lr, -20, 20)), cap)``.
Source: F. Yao, L. Liu, D. Zhang, C. Dong, J. Shang, J. Gao, "Your Efficient RL Framework Secretly
Brings You Off-Policy RL Training" (August 2025), https://fengyao.notion.site/off-policy-rl.
Deviation: the log-ratio is clamped before it is an exponent, so no weight is below 2e-9.
Pinned by ``tests/corrections/test_token_tis.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from torch import Tensor

from axisrl.ops.ratio import LOG_RATIO_BOUND
from axisrl.protocols import CorrectionResult, Level
from axisrl.types import BuildContext
from axisrl_icepop.config import TokenTisConfig
from axisrl_icepop.parts import log_gap, weighting


class TokenTis:
    """Weights single tokens."""

    level: Level = "token"

    def __init__(self, config: TokenTisConfig, context: BuildContext) -> None:
        self._cap = config.cap

    def __call__(
        self,
        old_logprobs_N: Tensor,
        rollout_logprobs_N: Tensor,
        mask_N: Tensor,
        trajectory_N: Tensor,
    ) -> CorrectionResult:
        """See :meth:`axisrl.protocols.Correction.__call__`."""
        gap_N = log_gap(old_logprobs_N, rollout_logprobs_N, mask_N)
        bounded_N = gap_N.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
        return weighting(bounded_N, self._cap, mask_N, old_logprobs_N.dtype)
