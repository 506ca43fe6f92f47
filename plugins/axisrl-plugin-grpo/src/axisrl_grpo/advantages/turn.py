"""The turn advantage: the group advantage, plus how well each turn did beside the same turn of the
other rollouts.

Only the turns before a rollout's last one are compared: what is earned at the last turn holds the
outcome, which the group advantage judges already, and rollouts end after different numbers of
turns. Without rewards for single turns it is therefore exactly ``grpo/group``.

Formula, for the tokens of turn k of rollout i with K_i turns, z the standardisation of
``grpo/group``: ``A_ik = z(R)_i + coef z(r_k)_i`` where k < K_i - 1, else ``z(R)_i``. R is the
reward of the rollout, r_k that of turn k of all rollouts with k < K - 1; z is exactly 0 where all
are equal, one alone included.
Source: MT-GRPO, arXiv 2505.11821.
Deviations: the coefficient stands on the turn's part instead of the outcome's; R is the whole
reward, that of turns included; rollouts need not have equal numbers of turns.
Pinned by ``tests/advantages/test_turn.py``.

Shape suffixes: ``G`` members of one group, ``K`` turns of one rollout.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from axisrl.errors import RunFailed
from axisrl.types import AdvantageResult, BuildContext, RolloutGroup, Turns, Values
from axisrl_grpo.advantages.rewards import Rewards, compared_rewards, standardised
from axisrl_grpo.config import TurnAdvantageConfig


class TurnAdvantage:
    """Advantages of one group, one entry a trained token."""

    group_relative = True
    needs_values = False
    whiten = False

    def __init__(self, config: TurnAdvantageConfig, context: BuildContext) -> None:
        self._config = config

    def __call__(self, group: RolloutGroup, values: tuple[Values, ...] | None) -> AdvantageResult:
        """Each advantage is float32 (trained tokens,); ``values`` are not used.

        Raises ``ConfigError`` for a group of one and ``RunFailed`` for a reward that is missing or
        not finite, and for a group that does not say how its members' turns went.
        """
        outcome_G = self._standardised(compared_rewards(group, "grpo/turn"))
        turn_GK = self._turn_parts(_checked_turns(group))
        return AdvantageResult(
            advantages=tuple(
                np.repeat(outcome + self._config.coef * turn_K, turns.tokens).astype(np.float32)
                for outcome, turn_K, turns in zip(outcome_G, turn_GK, group.turns, strict=True)
            )
        )

    def _turn_parts(self, turns_G: Sequence[Turns]) -> list[Rewards]:
        parts_GK = [np.zeros(len(turns.tokens)) for turns in turns_G]
        longest = max(len(turns.tokens) for turns in turns_G)
        for k in range(longest - 1):
            at = [i for i, turns in enumerate(turns_G) if k < len(turns.tokens) - 1]
            rewards = np.asarray([turns_G[i].rewards[k] for i in at], np.float64)
            for i, part in zip(at, self._standardised(rewards), strict=True):
                parts_GK[i][k] = part
        return parts_GK

    def _standardised(self, rewards_G: Rewards) -> Rewards:
        return standardised(rewards_G, self._config.eps, self._config.clip)


def _checked_turns(group: RolloutGroup) -> Sequence[Turns]:
    if len(group.turns) != len(group.members):
        raise RunFailed(
            f"the group of task {group.task_id} has {len(group.members)} members and tells of the "
            f"turns of {len(group.turns)}",
            fix="give RolloutGroup.turns, one a member, or use grpo/group",
        )
    for member, turns in zip(group.members, group.turns, strict=True):
        whole = len(turns.rewards) == len(turns.tokens) and bool(np.isfinite(turns.rewards).all())
        if not whole:
            raise RunFailed(
                f"rollout {member.id} of task {group.task_id} has turn rewards "
                f"{np.asarray(turns.rewards).tolist()} for {len(turns.tokens)} turns",
                fix="return one finite reward a turn (RewardResult.per_turn)",
            )
    return group.turns
