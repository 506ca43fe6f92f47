"""Generalised advantage estimation over the trained tokens of one rollout.

It does not compare rollouts, and tokens that were not sampled do not exist for it: neither a prompt
nor a tool result cuts the recursion or is a step of the discount.

Formula, over the trained tokens in the order they were sampled: ``delta_t = r_t + gamma V_{t+1} -
V_t``, ``A_t = delta_t + gamma lambda A_{t+1}``, returns ``A_t + V_t``. A turn's reward lies on the
last trained token of that turn, so what a rollout earns at its end is there once, however many rows
it is split into. After the last token V and A are 0; V is that of the last state where a truncated
rollout is bootstrapped.
Source: GAE, arXiv 1506.02438.
Deviations: none. Whitening is the core's (``whiten``), after this and never of returns.
Pinned by ``tests/test_advantage.py``.

Shape suffixes: ``T`` trained tokens of one rollout, ``U`` its turns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from axisrl.errors import ConfigError, RunFailed
from axisrl.types import (
    AdvantageResult,
    BuildContext,
    Outcome,
    RolloutGroup,
    RolloutSummary,
    Turns,
    Values,
)
from axisrl_ppo.config import GaeConfig

FloatT = NDArray[np.float64]


class GaeAdvantage:
    """One advantage and one return a trained token."""

    group_relative = False
    needs_values = True

    def __init__(self, config: GaeConfig, context: BuildContext) -> None:
        self._config = config
        self.whiten = config.whiten

    def __call__(self, group: RolloutGroup, values: tuple[Values, ...] | None) -> AdvantageResult:
        """Entries are float32 (trained tokens,); the recursion runs in float64.

        Raises ``ConfigError`` without values and ``RunFailed`` for a rollout whose rewards or
        values are not finite, or are not as many as its trained tokens.
        """
        if values is None:
            raise ConfigError(
                "ppo/gae is computed from a value model, and this run has none",
                fix="add `value: {loss: ppo/value}`, or use an advantage that needs no values",
            )
        advantages, returns = [], []
        for member, turns, value in zip(group.members, group.turns, values, strict=True):
            _check(member, turns, value)
            values_T = value.tokens.astype(np.float64)
            advantages_T = self._gae(_rewards(turns), values_T, self._last(member, value))
            advantages.append(advantages_T.astype(np.float32))
            returns.append((advantages_T + values_T).astype(np.float32))
        return AdvantageResult(advantages=tuple(advantages), returns=tuple(returns))

    def _last(self, member: RolloutSummary, value: Values) -> float:
        cut = member.outcome is Outcome.TRUNCATED
        return value.last if cut and self._config.bootstrap_truncated else 0.0

    def _gae(self, rewards_T: FloatT, values_T: FloatT, last: float) -> FloatT:
        gamma, lam = self._config.gamma, self._config.lam
        deltas_T = rewards_T + gamma * np.append(values_T[1:], last) - values_T
        advantages, advantage = [], 0.0
        for delta in reversed(deltas_T.tolist()):
            advantage = delta + gamma * lam * advantage
            advantages.append(advantage)
        return np.asarray(advantages[::-1], np.float64)


def _rewards(turns: Turns) -> FloatT:
    """Each turn's reward at its last trained token; where a turn has none, at the one before it (or
    the first)."""
    rewards_T = np.zeros(sum(turns.tokens), np.float64)
    if len(rewards_T):
        at_U = np.maximum(np.cumsum(turns.tokens) - 1, 0)
        np.add.at(rewards_T, at_U, turns.rewards.astype(np.float64))
    return rewards_T


def _check(member: RolloutSummary, turns: Turns, value: Values) -> None:
    trained = sum(turns.tokens)
    if value.tokens.shape != (trained,):
        raise RunFailed(
            f"rollout {member.id} of task {member.task_id} has values of shape "
            f"{value.tokens.shape} for {trained} trained tokens",
            fix="return one value for each trained token",
        )
    if not np.isfinite(turns.rewards).all():
        raise RunFailed(
            f"rollout {member.id} of task {member.task_id} has a reward that is not finite",
            fix="return a finite reward, or let a verifier that cannot judge set Verdict.error",
        )
    if not np.isfinite(value.tokens).all() or not np.isfinite(value.last):
        raise RunFailed(
            f"the value model's values of rollout {member.id} of task {member.task_id} are not "
            "finite",
            fix="lower the value model's learning rate, value.trainer.lr",
        )
