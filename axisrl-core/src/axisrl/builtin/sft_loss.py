"""``core/sft``: supervised fine-tuning. The negative log-likelihood of every trained token.

It reads no advantage and nothing that was recorded at sampling, so it learns from texts that nobody
sampled as well.

Formula: ``L = -lp``. Which tokens are trained is the trace's: of a conversation every assistant
turn. Pinned by ``tests/builtin/test_sft_loss.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from axisrl.config.losses import LossConfig
from axisrl.ops.masked import zero_masked
from axisrl.protocols import Level, LossInputs, LossResult
from axisrl.types import BuildContext


class SftLoss:
    """Per-token numerators; exactly 0, value and gradient, where masked."""

    needs = frozenset[str]()
    level: Level = "token"

    def __init__(self, config: LossConfig, context: BuildContext) -> None:
        self.aggregation = config.aggregation
        self.sequence_norm = config.sequence_norm

    def __call__(self, batch: LossInputs) -> LossResult:
        """See :meth:`axisrl.protocols.Loss.__call__`."""
        return LossResult(per_token_N=-zero_masked(batch.logprobs_N, batch.mask_N))
