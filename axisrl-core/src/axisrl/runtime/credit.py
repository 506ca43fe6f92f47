"""Credit: what each trained token of an update is worth. Advantages, whitening, distillation.

1. The advantage sees one group at a time, with the turns of its members and, where there is a value
   model, its values.
2. Where it asks for it, the result is whitened over the trained tokens of the whole update.
3. With a teacher, ``A' = (1 - alpha) A - alpha clip(student - teacher, +-clip)``; the student's
   log-probabilities are the ones recorded at sampling.

It is computed beside the trainer, so that arrays over tokens never pass through the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from axisrl.config.schema import TeacherConfig
from axisrl.errors import RunFailed
from axisrl.protocols import Advantage
from axisrl.runtime.trajectory import Trajectory
from axisrl.types import FloatArray, RolloutGroup, Turns, Values

_EPS = 1e-8


@dataclass(slots=True, kw_only=True)
class Member:
    """A rollout of a group with what was computed about it. Arrays are (trained tokens,), in the
    order of sampling."""

    id: str
    trajectory: Trajectory
    turns: Turns
    values: Values | None = None
    scores: Mapping[str, FloatArray] = field(default_factory=dict)
    """``reference_logprobs`` and ``teacher_logprobs``, where they were computed."""
    advantages: FloatArray | None = None
    returns: FloatArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedGroup:
    """A group and its members, fetched."""

    group: RolloutGroup
    members: tuple[Member, ...]


def assign(
    groups: Sequence[LoadedGroup], advantage: Advantage, teacher: TeacherConfig | None
) -> None:
    """Set ``advantages`` (and ``returns``) of every member of one update.

    Raises ``RunFailed`` when the advantage returns something else than one finite entry a member or
    a trained token.
    """
    for loaded in groups:
        _advantages(loaded, advantage)
    members = [member for loaded in groups for member in loaded.members]
    if advantage.whiten and members:
        _whiten(members)
    if teacher is not None:
        for member in members:
            _distil(member, teacher)


def turns_of(trajectory: Trajectory, reward: float, per_turn: FloatArray | None) -> Turns:
    """How ``reward`` lies over the turns: what ``per_turn`` leaves of it is earned at the last.

    Raises ``RunFailed`` when there are not as many turns as entries of ``per_turn``.
    """
    tokens = trajectory.turn_tokens
    rewards = np.zeros(len(tokens), np.float32)
    if per_turn is not None:
        if len(per_turn) != len(tokens):
            raise RunFailed(
                f"a reward gave {len(per_turn)} turns of a rollout that has {len(tokens)}",
                fix="return one entry of RewardResult.per_turn for each model call",
            )
        rewards += per_turn
    rewards[-1] += np.float32(reward - float(rewards.sum(dtype=np.float64)))
    return Turns(tokens=tokens, rewards=rewards)


def _advantages(loaded: LoadedGroup, advantage: Advantage) -> None:
    values = [member.values for member in loaded.members if member.values is not None]
    result = advantage(loaded.group, tuple(values) if values else None)
    if len(result.advantages) != len(loaded.members):
        raise RunFailed(
            f"the advantage gave {len(result.advantages)} entries for the {len(loaded.members)} "
            f"members of group {loaded.group.group}",
            fix="check the advantage with `axisrl plugins check`",
        )
    for at, member in enumerate(loaded.members):
        member.advantages = _checked(member, result.advantages[at], "advantages")
        if result.returns is not None:
            member.returns = _checked(member, result.returns[at], "returns")


def _checked(member: Member, entry: NDArray[np.float32], what: str) -> FloatArray:
    tokens = member.trajectory.tokens
    if entry.shape not in ((), (tokens,)) or not np.isfinite(entry).all():
        raise RunFailed(
            f"the {what} of rollout {member.id} have shape {entry.shape}, or are not finite: "
            f"neither one number nor one for each of {tokens} trained tokens",
            fix="check the advantage with `axisrl plugins check`",
        )
    return np.broadcast_to(entry, (tokens,)).astype(np.float32)


def _whiten(members: Sequence[Member]) -> None:
    flat = np.concatenate([_of(member) for member in members]).astype(np.float64)
    mean, spread = flat.mean(), flat.std()
    for member in members:
        scaled = (_of(member) - mean) / (spread + _EPS)
        member.advantages = scaled.astype(np.float32)


def _distil(member: Member, teacher: TeacherConfig) -> None:
    student = member.trajectory.gather([s.rollout_logprobs for s in member.trajectory.samples])
    gap = (student - member.scores["teacher_logprobs"]).clip(-teacher.clip, teacher.clip)
    blended = (1 - teacher.alpha) * _of(member) - teacher.alpha * gap
    member.advantages = blended.astype(np.float32)


def _of(member: Member) -> FloatArray:
    if member.advantages is None:
        raise ValueError(f"rollout {member.id} has no advantages yet")
    return member.advantages
