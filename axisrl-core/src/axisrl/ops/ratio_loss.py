"""Losses around a probability ratio: what all of them share, and the clipped one whole.

:class:`RatioLoss` holds the options that every such loss has and gives the log-ratio; a subclass
says what a token loses. :class:`ClippedRatioLoss` is the loss of PPO and of GRPO, which differ in
their advantages alone; its formula and its sources open :mod:`axisrl.ops.clip`. Neither knows a
denominator. Pinned by ``tests/ops/test_ratio_loss.py`` and by the tests of the plugins' losses.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from torch import Tensor

from axisrl.config.losses import ClippedRatioLossConfig, RatioLossConfig
from axisrl.ops.clip import ClipRange, clipped_ratio_loss, mismatch_stats
from axisrl.ops.masked import zero_masked
from axisrl.ops.ratio import base_logprobs, log_ratio
from axisrl.protocols import Level, LossInputs, LossResult
from axisrl.types import BuildContext


class RatioLoss:
    """Base of an :class:`axisrl.protocols.Loss`; a subclass has ``__call__``."""

    level: Level = "token"

    def __init__(self, config: RatioLossConfig, context: BuildContext) -> None:
        self._base = config.base
        self.needs = frozenset({"old_logprobs"} if config.base == "old" else ())
        self.aggregation = config.aggregation
        self.sequence_norm = config.sequence_norm

    def log_ratio(self, batch: LossInputs) -> Tensor:
        """``d`` (N,) of :mod:`axisrl.ops.ratio`, measured from the configured base."""
        return log_ratio(batch.logprobs_N, base_logprobs(batch, self._base), batch.mask_N)


class ClippedRatioLoss(RatioLoss):
    """Per-token numerators; exactly 0, value and gradient, where masked."""

    def __init__(self, config: ClippedRatioLossConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self._clip = ClipRange(config.clip_low, config.clip_high, config.dual_clip)

    def __call__(self, batch: LossInputs) -> LossResult:
        """See :meth:`axisrl.protocols.Loss.__call__`."""
        advantages_N = zero_masked(batch.advantages_N, batch.mask_N)
        loss_N, stats = clipped_ratio_loss(self.log_ratio(batch), advantages_N, self._clip)
        return LossResult(
            per_token_N=zero_masked(loss_N, batch.mask_N), stats=stats | mismatch_stats(batch)
        )
