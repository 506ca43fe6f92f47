"""What the advantages share: checked rewards, and differences that are exactly 0 among equals.

Equal rewards are found by comparison and never by their differences from a mean: the mean of eight
float rewards of 0.2 need not be 0.2.

Shape suffix: ``G`` members of one group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from axisrl.errors import ConfigError, RunFailed
from axisrl.types import AdvantageResult, RolloutGroup

Rewards = NDArray[np.float64]


def checked_rewards(group: RolloutGroup) -> Rewards:
    """float64 (G,). Raises ``RunFailed`` for a reward that is missing or not finite."""
    for member in group.members:
        if member.reward is None or not np.isfinite(member.reward):
            raise RunFailed(
                f"rollout {member.id} of task {group.task_id} has reward {member.reward}",
                fix="return a finite reward, or let a verifier that cannot judge set Verdict.error",
            )
    return group.rewards.astype(np.float64)


def compared_rewards(group: RolloutGroup, use: str) -> Rewards:
    """The same for an advantage, named ``use``, that compares members: ``ConfigError`` for one."""
    if len(group.members) < 2:
        raise ConfigError(
            f"{use} compares the members of a group, and the group of task {group.task_id} "
            f"has {len(group.members)}",
            fix="set rollout.group_size and rollout.min_group_size to 2 or more",
        )
    return checked_rewards(group)


def centred(rewards_G: Rewards) -> Rewards:
    """Rewards minus their mean (G,); exactly 0 for all when all are equal."""
    if rewards_G.min() == rewards_G.max():
        return np.zeros_like(rewards_G)
    centred_G: Rewards = rewards_G - rewards_G.mean()
    return centred_G


def standardised(rewards_G: Rewards, eps: float, clip: float) -> Rewards:
    """:func:`centred` in units of the standard deviation (ddof 1) plus ``eps``, within +-``clip``;
    0 for a single one."""
    centred_G = centred(rewards_G)
    if not centred_G.any():
        return centred_G
    scaled_G: Rewards = centred_G / (rewards_G.std(ddof=1) + eps)
    return scaled_G.clip(-clip, clip)


def one_scalar_each(advantages_G: Rewards) -> AdvantageResult:
    """A float32 scalar for each member."""
    return AdvantageResult(
        advantages=tuple(np.asarray(value, dtype=np.float32) for value in advantages_G)
    )
