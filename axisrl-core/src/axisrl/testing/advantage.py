"""What a :class:`axisrl.protocols.Advantage` promises. It does not pin the formula: reference
numbers are the plugin's own tests.

Values are made up where the advantage says ``needs_values``.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

import numpy as np

from axisrl.plugins.components import AdvantageComponent
from axisrl.protocols.advantage import Advantage
from axisrl.testing.cases import AdvantageCase
from axisrl.testing.harness import CheckSkipped, Subject, Suite, require, require_close
from axisrl.types import (
    AdvantageResult,
    FloatArray,
    Outcome,
    RolloutGroup,
    RolloutSummary,
    Turns,
    Values,
)

AdvantageSubject = Subject[AdvantageCase]

_MIXED = ((0.0, 1.0), (0.0, 0.25, 1.0), (1.0, 0.0, 0.0, 1.0, 0.5, 0.0, 0.0, 2.0))
_EQUAL = ((0.2,) * 8, (0.35,) * 8, (1.0,) * 4, (0.0,) * 3, (1 / 3,) * 5)
_NEARLY_EQUAL = ((0.35,) * 7 + (0.0,), (0.4,) * 7 + (0.0,), (0.3,) * 7 + (0.0,))
_BOUND = 10.0


def group_of(rewards: Sequence[float], turns: int = 1) -> RolloutGroup:
    """A group whose member ``i`` has ``3 + i`` trained tokens and the i-th reward, over ``turns``
    turns: half of it at the first, the rest at the last. With several turns the last member was
    cut off."""
    cut = len(rewards) - 1 if turns > 1 else None
    members = tuple(
        RolloutSummary(
            id=f"0/{i}",
            task_id="sample",
            group=0,
            member=i,
            outcome=Outcome.TRUNCATED if i == cut else Outcome.COMPLETED,
            reward=reward,
            turns=turns,
            sampled_tokens=3 + i,
        )
        for i, reward in enumerate(rewards)
    )
    return _group([(member, _turns(member, turns)) for member in members])


def one_finite_entry_a_member(subject: AdvantageSubject) -> None:
    """Each entry is float32, of shape () or (trained tokens,), without NaN; returns likewise."""
    for rewards in (*_MIXED, *_EQUAL):
        _require_entries(subject, group_of(rewards), "")


def rollouts_of_several_turns_are_members_too(subject: AdvantageSubject) -> None:
    """Rewards at two turns, and a rollout that was cut off: entries as for one turn."""
    for rewards in _MIXED:
        _require_entries(subject, group_of(rewards, turns=3), " (3 turns)")


def returns_come_with_values(subject: AdvantageSubject) -> None:
    """Where it is computed from values: one return a trained token, to train them towards."""
    if not subject.build().needs_values:
        raise CheckSkipped("it is not computed from values")
    group = group_of(_MIXED[1])
    returns = _result(subject, group).returns
    require(returns is not None, "it was given values and gave no returns")
    for turns, entry in zip(group.turns, returns or (), strict=True):
        want = (sum(turns.tokens),)
        require(entry.shape == want, f"returns have shape {entry.shape}, not {want}")


def says_whether_it_compares_needs_values_and_is_whitened(subject: AdvantageSubject) -> None:
    """``group_relative``, ``needs_values`` and ``whiten`` are True or False."""
    advantage = subject.build()
    for name in ("group_relative", "needs_values", "whiten"):
        said = getattr(advantage, name, None)
        require(isinstance(said, bool), f"{name} is {said!r}, not True or False")


def says_what_its_descriptor_says(subject: AdvantageSubject) -> None:
    """``group_relative`` and ``needs_values`` are the same before and after the import."""
    if not isinstance(subject.descriptor, AdvantageComponent):
        raise CheckSkipped("it is tried without its descriptor")
    advantage = subject.build()
    for name in ("group_relative", "needs_values"):
        built, said = getattr(advantage, name), getattr(subject.descriptor, name)
        require(built == said, f"{name} is {built}, its descriptor says {said}")


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
        same = [dataclasses.replace(m, sampled_tokens=4) for m in group_of(rewards).members]
        group = _group([(member, _turns(member, 1)) for member in same])
        levels = _levels(_result(subject, group, flat=True))
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
        back = _group(list(zip(group.members, group.turns, strict=True))[::-1])
        reverse = _levels(_result(subject, back))
        require_close(reverse[::-1], straight, atol=1e-6, what=f"{rewards} in reverse order")


def inputs_are_not_changed(subject: AdvantageSubject) -> None:
    """Neither the group nor the values."""
    group = group_of(_MIXED[1], turns=2)
    values = _values(subject, group)
    before = copy.deepcopy((group, values))
    subject.build()(group, values)
    same = group.members == before[0].members
    require(same and _same_arrays((group, values), before), "the advantage changed its inputs")


class AdvantageSuite(Suite):
    """Tries an advantage with ``AdvantageCase``s."""

    kind = "advantage"
    checks = (
        one_finite_entry_a_member,
        rollouts_of_several_turns_are_members_too,
        returns_come_with_values,
        says_whether_it_compares_needs_values_and_is_whitened,
        says_what_its_descriptor_says,
        zero_mean_within_a_group,
        equal_rewards_give_exactly_zero,
        nearly_equal_rewards_stay_bounded,
        more_reward_is_more_advantage,
        order_of_members_does_not_matter,
        inputs_are_not_changed,
    )


def _group(pairs: Sequence[tuple[RolloutSummary, Turns]]) -> RolloutGroup:
    members, turns = zip(*pairs, strict=True)
    return RolloutGroup(group=0, task_id="sample", members=members, turns=turns)


def _turns(member: RolloutSummary, turns: int) -> Turns:
    """All but the last turn have one trained token."""
    rewards = np.zeros(turns, np.float32)
    rewards[0] = (member.reward or 0.0) / 2
    rewards[-1] += (member.reward or 0.0) / 2
    return Turns(tokens=(*(1,) * (turns - 1), member.sampled_tokens - turns + 1), rewards=rewards)


def _values(
    subject: AdvantageSubject, group: RolloutGroup, flat: bool = False
) -> tuple[Values, ...] | None:
    """Deterministic estimates that depend on the member, or, when flat, on nothing."""
    if not subject.build().needs_values:
        return None
    tops = [0.5 if flat else 0.1 * member.member for member in group.members]
    return tuple(
        Values(tokens=np.linspace(0.0, top, sum(turns.tokens), dtype=np.float32), last=top)
        for top, turns in zip(tops, group.turns, strict=True)
    )


def _same_arrays(
    after: tuple[RolloutGroup, tuple[Values, ...] | None],
    before: tuple[RolloutGroup, tuple[Values, ...] | None],
) -> bool:
    """Bit for bit, rewards and values."""
    flat = [
        [*(turns.rewards for turns in group.turns), *(value.tokens for value in values or ())]
        for group, values in (after, before)
    ]
    return all(np.array_equal(left, right) for left, right in zip(*flat, strict=True))


def _result(subject: AdvantageSubject, group: RolloutGroup, flat: bool = False) -> AdvantageResult:
    advantage: Advantage = subject.build()
    return advantage(group, _values(subject, group, flat))


def _levels(result: AdvantageResult) -> FloatArray:
    """One number a member: its advantage, averaged over tokens where it has several."""
    return np.asarray([np.mean(entry) for entry in result.advantages], np.float32)


def _needs_group_relative(subject: AdvantageSubject) -> None:
    if not subject.build().group_relative:
        raise CheckSkipped("it does not compare the members of a group")


def _require_entries(subject: AdvantageSubject, group: RolloutGroup, whose: str) -> None:
    result = _result(subject, group)
    for name, entries in (("advantages", result.advantages), ("returns", result.returns)):
        if entries is None:
            continue
        count, members = len(entries), len(group.members)
        require(count == members, f"{count} {name} for a group of {members}")
        for at, (entry, turns) in enumerate(zip(entries, group.turns, strict=True)):
            _require_entry(f"{name} of member {at}{whose}", entry, sum(turns.tokens))


def _require_entry(what: str, entry: FloatArray, tokens: int) -> None:
    require(isinstance(entry, np.ndarray), f"{what} is a {type(entry).__name__}, not an array")
    require(entry.dtype == np.float32, f"{what} are {entry.dtype}, not float32")
    require(
        entry.shape in ((), (tokens,)),
        f"{what} have shape {entry.shape}, neither () nor ({tokens},)",
    )
    require(bool(np.isfinite(entry).all()), f"{what} hold NaN or infinity")
