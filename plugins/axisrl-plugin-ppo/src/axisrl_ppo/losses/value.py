"""The value loss: squared error to the return, clipped around the value before the window.

It trains a value model and reads no log-probabilities. It holds no denominator: the aggregation it
declares is the trainer's.

Formula, per trained token: ``L = coef max((v - R)^2, (v_old + clip(v - v_old, -c, c) - R)^2)``;
without a clip ``coef (v - R)^2``. The larger of the two is a pessimist: a value that moved further
than c towards its return has no gradient, one that moved away from it keeps all of it.
Sources: PPO, arXiv 1707.06347; its value clipping, 2005.12729.
Deviations: no factor 1/2 (``coef``).
Pinned by ``tests/losses/test_value.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from axisrl.ops.clip import mean_stat
from axisrl.ops.masked import zero_masked
from axisrl.protocols import Level, LossInputs, LossResult
from axisrl.types import BuildContext
from axisrl_ppo.config import ValueLossConfig


class ValueLoss:
    """Per-token numerators; exactly 0, value and gradient, where masked."""

    needs = frozenset({"values"})
    level: Level = "token"

    def __init__(self, config: ValueLossConfig, context: BuildContext) -> None:
        self._clip = config.clip
        self._coef = config.coef
        self.aggregation = config.aggregation
        self.sequence_norm = config.sequence_norm

    def __call__(self, batch: LossInputs) -> LossResult:
        """See :meth:`axisrl.protocols.Loss.__call__`. Raises ``ValueError`` for a batch without
        values, old values or returns."""
        values_N, old_N, returns_N = (
            zero_masked(column_N, batch.mask_N) for column_N in _columns(batch)
        )
        error_N = (values_N - returns_N).square()
        loss_N, stats = error_N, {}
        if self._clip is not None:
            near_N = old_N + (values_N - old_N).clamp(-self._clip, self._clip)
            bounded_N = (near_N - returns_N).square()
            loss_N = torch.maximum(error_N, bounded_N)
            stats["value_clip_fraction"] = mean_stat(bounded_N > error_N)
        stats |= {
            "value": mean_stat(values_N),
            "return": mean_stat(returns_N),
            "return_square": mean_stat(returns_N.square()),
            "squared_error": mean_stat(error_N),
        }
        return LossResult(per_token_N=self._coef * loss_N, stats=stats)


def _columns(batch: LossInputs) -> tuple[Tensor, Tensor, Tensor]:
    if batch.values_N is None or batch.old_values_N is None or batch.returns_N is None:
        raise ValueError("a value loss was given a batch without values, old values or returns")
    return batch.values_N, batch.old_values_N, batch.returns_N
