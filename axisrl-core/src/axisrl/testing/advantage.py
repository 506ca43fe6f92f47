"""What a :class:`axisrl.protocols.Advantage` promises. It does not pin the formula: reference
numbers are the plugin's own tests."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

import numpy as np

from axisrl.plugins.components import AdvantageComponent
from axisrl.protocols.advantage import Advantage
from axisrl.testing.cases import AdvantageCase
from axisrl.testing.harness import CheckSkipped, Subject, Suite, require, require_close
from axisrl.types import AdvantageResult, FloatArray, Outcome, RolloutGroup, RolloutSummary

AdvantageSubject = Subject[AdvantageCase]

_MIXED = ((0.0, 1.0), (0.0, 0.25, 1.0), (1.0, 0.0, 0.0, 1.0, 0.5, 0.0, 0.0, 2.0))
_EQUAL = ((0.2,) * 8, (0.35,) * 8, (1.0,) * 4, (0.0,) * 3, (1 / 3,) * 5)
_NEARLY_EQUAL = ((0.35,) * 7 + (0.0,), (0.4,) * 7 + (0.0,), (0.3,) * 7 + (0.0,))
_BOUND = 10.0


def group_of(rewards: Sequence[float]) -> RolloutGroup:
    """A group whose member ``i`` has ``3 + i`` sampled tokens and the i-th reward."""
    members = tuple(
        RolloutSummary(
            id=f"0/{i}",
            task_id="sample",
            group=0,
            member=i,
            outcome=Outcome.COMPLETED,
            reward=reward,
            sampled_tokens=3 + i,
        )
        for i, reward in enumerate(rewards)
    )
    return RolloutGroup(group=0, task_id="sample", members=members)


def one_finite_entry_a_member(subject: AdvantageSubject) -> None:
    """Each entry is float32, of shape () or (trained tokens,), without NaN; returns likewise."""
    for rewards in (*_MIXED, *_EQUAL):
        group = group_of(rewards)
        result = _result(subject, group)
        for name, entries in (("advantages", result.advantages), ("returns", result.returns)):
            if entries is None:
                continue
            require(
                len(entries) == len(rewards),
                f"{len(entries)} {name} for a group of {len(rewards)}",
            )
            for member, entry in zip(group.members, entries, strict=True):
                _require_entry(f"{name} of member {member.member}", entry, member.sampled_tokens)


def says_what_its_descriptor_says(subject: AdvantageSubject) -> None:
    """``group_relative`` is the same before and after the import."""
    if not isinstance(subject.descriptor, AdvantageComponent):
        raise CheckSkipped("it is tried without its descriptor")
    built, said = subject.build().group_relative, subject.descriptor.group_relative
    require(built == said, f"group_relative is {built}, its descriptor says {said}")


def zero_mean_within_a_group(subject: AdvantageSubject) -> None:
    """Where ``group_relative``."""
    _needs_group_relative(subject)
    for rewards in _MIXED:
        mean = float(np.mean(_levels(_result(subject, group_of(rewards)))))
        require_close(mean, 0.0, atol=1e-5, what=f"the mean advantage of rewards {rewards}")


def equal_rewards_give_exactly_zero(subject: AdvantageSubject) -> None:
    """Where ``group_relative``: no noise is blown up into a signal."""
    _needs_group_relative(subject)
    for rewards in _EQUAL:
        levels = _levels(_result(subject, group_of(rewards)))
        require(not levels.any(), f"{len(rewards)} rewards of {rewards[0]} gave {levels.tolist()}")


def nearly_equal_rewards_stay_bounded(subject: AdvantageSubject) -> None:
    """One odd member among equals never gets an advantage of 10 or more."""
    _needs_group_relative(subject)
    for rewards in _NEARLY_EQUAL:
        worst = float(np.abs(_levels(_result(subject, group_of(rewards)))).max())
        require(worst < _BOUND, f"rewards {rewards} gave an advantage of {worst:.3g}")


def more_reward_is_more_advantage(subject: AdvantageSubject) -> None:
    """Among members of equal length, and never less for equal rewards."""
    for rewards in _MIXED:
        group = group_of(rewards)
        members = tuple(_with_length(member, 4) for member in group.members)
        levels = _levels(
            _result(subject, RolloutGroup(group=0, task_id="sample", members=members), flat=True)
        )
        order = np.argsort(rewards, kind="stable")
        steps, gaps = np.diff(levels[order]), np.diff(np.asarray(rewards)[order])
        require(
            bool(np.all(steps[gaps > 0] > 0)),
            f"rewards {rewards} gave advantages {levels.tolist()}",
        )


def order_of_members_does_not_matter(subject: AdvantageSubject) -> None:
    """The members permuted give the advantages permuted."""
    for rewards in _MIXED:
        group = group_of(rewards)
        straight = _levels(_result(subject, group))
        back = RolloutGroup(group=0, task_id="sample", members=group.members[::-1])
        reverse = _levels(_result(subject, back))
        require_close(reverse[::-1], straight, atol=1e-6, what=f"{rewards} in reverse order")


def inputs_are_not_changed(subject: AdvantageSubject) -> None:
    """Neither the group nor the values."""
    group = group_of(_MIXED[1])
    values = _values(subject, group)
    before = copy.deepcopy((group, values))
    subject.build()(group, values)
    same = values is None or all(
        np.array_equal(left, right) for left, right in zip(values, before[1] or (), strict=True)
    )
    require(group == before[0] and same, "the advantage changed its inputs")


class AdvantageSuite(Suite):
    """Tries an advantage with ``AdvantageCase``s."""

    kind = "advantage"
    checks = (
        one_finite_entry_a_member,
        says_what_its_descriptor_says,
        zero_mean_within_a_group,
        equal_rewards_give_exactly_zero,
        nearly_equal_rewards_stay_bounded,
        more_reward_is_more_advantage,
        order_of_members_does_not_matter,
        inputs_are_not_changed,
    )


def _values(
    subject: AdvantageSubject, group: RolloutGroup, flat: bool = False
) -> tuple[FloatArray, ...] | None:
    """Deterministic estimates that depend on the member, or, when flat, on nothing."""
    if not subject.case.needs_values:
        return None
    return tuple(
        np.linspace(0.0, 0.5 if flat else 0.1 * member.member, member.sampled_tokens).astype(
            np.float32
        )
        for member in group.members
    )


def _result(subject: AdvantageSubject, group: RolloutGroup, flat: bool = False) -> AdvantageResult:
    advantage: Advantage = subject.build()
    return advantage(group, _values(subject, group, flat))


def _levels(result: AdvantageResult) -> FloatArray:
    """One number a member: its advantage, averaged over tokens where it has several."""
    return np.asarray([np.mean(entry) for entry in result.advantages], np.float32)


def _needs_group_relative(subject: AdvantageSubject) -> None:
    if not subject.build().group_relative:
        raise CheckSkipped("it does not compare the members of a group")


def _require_entry(what: str, entry: FloatArray, tokens: int) -> None:
    require(isinstance(entry, np.ndarray), f"{what} is a {type(entry).__name__}, not an array")
    require(entry.dtype == np.float32, f"{what} are {entry.dtype}, not float32")
    require(
        entry.shape in ((), (tokens,)),
        f"{what} have shape {entry.shape}, neither () nor ({tokens},)",
    )
    require(bool(np.isfinite(entry).all()), f"{what} hold NaN or infinity")


def _with_length(member: RolloutSummary, tokens: int) -> RolloutSummary:
    return dataclasses.replace(member, sampled_tokens=tokens)
