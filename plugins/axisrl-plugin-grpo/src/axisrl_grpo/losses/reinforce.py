"""REINFORCE: the plain policy gradient of the sampled tokens.

It has no ratio, so it needs no other log-probabilities and forgives no stale ones: take one update
from each window of rollouts (``train.updates_per_sync: 1``).

Formula, per trained token: ``L = -A lp``.
Source: Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement
learning" (1992). Deviations: none.
Pinned by ``tests/losses/test_reinforce.py``.
"""

from __future__ import annotations

from axisrl.config.losses import LossConfig
from axisrl.protocols import Level, LossInputs, LossResult
from axisrl.types import BuildContext
from axisrl_grpo.policy_gradient import policy_gradient


class ReinforceLoss:
    """Per-token numerators; exactly 0, value and gradient, where masked."""

    level: Level = "token"
    needs: frozenset[str] = frozenset()

    def __init__(self, config: LossConfig, context: BuildContext) -> None:
        self.aggregation = config.aggregation
        self.sequence_norm = config.sequence_norm

    def __call__(self, batch: LossInputs) -> LossResult:
        """See :meth:`axisrl.protocols.Loss.__call__`."""
        return LossResult(per_token_N=policy_gradient(batch))
