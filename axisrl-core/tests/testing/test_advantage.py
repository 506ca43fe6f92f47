"""Each check of AdvantageSuite catches an advantage that breaks its promise."""

import numpy as np
import pytest

from axisrl.plugins import AdvantageComponent
from axisrl.testing import AdvantageCase, AdvantageSuite
from axisrl.testing import advantage as checks
from axisrl.types import AdvantageResult

CASE = AdvantageCase(use="toy/group")
DESCRIPTOR = AdvantageComponent(name="group", target="toy:Group")
VALUED = AdvantageComponent(
    name="valued", target="toy:Valued", group_relative=False, needs_values=True
)


class Good:
    group_relative = True
    needs_values = False
    whiten = False

    def __init__(self, context):
        pass

    def __call__(self, group, values):
        rewards = group.rewards.astype(np.float64)
        if rewards.min() == rewards.max():
            return self.result(np.zeros(len(rewards)))
        return self.result((rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6))

    def result(self, numbers):
        return AdvantageResult(advantages=tuple(np.asarray(n, np.float32) for n in numbers))


class Doubles(Good):
    def result(self, numbers):
        return AdvantageResult(advantages=tuple(np.asarray(n) for n in numbers))


class OneTooFew(Good):
    def result(self, numbers):
        return super().result(numbers[1:])


class PerTurn(Good):
    def result(self, numbers):
        return AdvantageResult(advantages=tuple(np.full(2, n, np.float32) for n in numbers))


class NaNReturns(Good):
    def result(self, numbers):
        advantages = super().result(numbers).advantages
        nothing = tuple(np.asarray(np.nan, np.float32) for _ in numbers)
        return AdvantageResult(advantages=advantages, returns=nothing)


class SaysOtherwise(Good):
    group_relative = False


class NotCentred(Good):
    def __call__(self, group, values):
        return self.result(group.rewards - group.rewards.min())


class BlowsUpNoise(Good):
    """Equal rewards leave a rounding error in the mean; dividing by its size makes it a signal."""

    def __call__(self, group, values):
        rewards = group.rewards
        mean = sum(rewards.tolist()) / len(rewards) + 1e-9
        return self.result((rewards - mean) / (rewards.std() + 1e-9))


class LeaveOneOut(Good):
    """Divides by the spread of the others, which is nothing when they agree."""

    def __call__(self, group, values):
        rewards = group.rewards.astype(np.float64)
        others = [np.delete(rewards, i) for i in range(len(rewards))]
        gaps = [r - o.mean() for r, o in zip(rewards, others, strict=True)]
        return self.result([g / (o.std() + 1e-6) for g, o in zip(gaps, others, strict=True)])


class UpsideDown(Good):
    def result(self, numbers):
        return super().result(-np.asarray(numbers))


class FirstIsBaseline(Good):
    def __call__(self, group, values):
        return self.result(group.rewards - group.members[0].reward)


class OnePerTurn(Good):
    """Takes turns for tokens."""

    def __call__(self, group, values):
        numbers = [turns.rewards for turns in group.turns]
        return self.result(numbers if len(numbers[0]) > 1 else [n[0] for n in numbers])


class WhitensSometimes(Good):
    whiten = "sometimes"


class SaysItNeedsValues(Good):
    needs_values = True


class Valued(Good):
    """What is still to come, less what was expected."""

    group_relative = False
    needs_values = True
    whiten = True

    def __call__(self, group, values):
        entries = []
        for turns in group.turns:
            rewards = np.zeros(sum(turns.tokens), np.float32)
            rewards[np.cumsum(turns.tokens) - 1] = turns.rewards
            entries.append(rewards[::-1].cumsum()[::-1].astype(np.float32))
        gaps = [entry - value.tokens for entry, value in zip(entries, values, strict=True)]
        return AdvantageResult(advantages=tuple(gaps), returns=self.returns(entries))

    def returns(self, entries):
        return tuple(entries)


class WithoutReturns(Valued):
    def returns(self, entries):
        return None


class OneReturnARollout(Valued):
    def returns(self, entries):
        return tuple(np.asarray(entry[0]) for entry in entries)


class ChangesTheValues(Valued):
    def __call__(self, group, values):
        for value in values:
            value.tokens.__iadd__(1)
        return super().__call__(group, values)


class ChangesTheRewards(Valued):
    def __call__(self, group, values):
        group.turns[0].rewards[0] = 7
        return super().__call__(group, values)


BROKEN = [
    (checks.one_finite_entry_a_member, Doubles, "are float64, not float32"),
    (checks.one_finite_entry_a_member, OneTooFew, "1 advantages for a group of 2"),
    (checks.one_finite_entry_a_member, PerTurn, r"shape \(2,\), neither \(\) nor \(3,\)"),
    (checks.one_finite_entry_a_member, NaNReturns, "returns of member 0 hold NaN"),
    (checks.rollouts_of_several_turns_are_members_too, OnePerTurn, r"member 1 \(3 turns\) have sh"),
    (
        checks.says_whether_it_compares_needs_values_and_is_whitened,
        WhitensSometimes,
        "whiten is 'sometimes'",
    ),
    (checks.says_what_its_descriptor_says, SaysOtherwise, "group_relative is False, its desc"),
    (checks.says_what_its_descriptor_says, SaysItNeedsValues, "needs_values is True, its desc"),
    (checks.zero_mean_within_a_group, NotCentred, r"mean advantage .* off by 0\.5"),
    (checks.equal_rewards_give_exactly_zero, BlowsUpNoise, r"rewards of 0\.\d+ gave"),
    (checks.nearly_equal_rewards_stay_bounded, LeaveOneOut, r"gave an advantage of 3\.5e\+05"),
    (checks.more_reward_is_more_advantage, UpsideDown, "gave advantages"),
    (checks.order_of_members_does_not_matter, FirstIsBaseline, "in reverse order: off by 1"),
]


def test_a_good_advantage_passes_every_check(trial):
    skips = [checks.returns_come_with_values]
    trial.passes(AdvantageSuite, CASE, Good, DESCRIPTOR, skips=skips)


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_advantage_is_caught(trial, check, make, told):
    trial.fails(check, CASE, make, told, DESCRIPTOR)


VALUED_BROKEN = [
    (checks.returns_come_with_values, WithoutReturns, "given values and gave no returns"),
    (checks.returns_come_with_values, OneReturnARollout, r"shape \(\), not \(3,\)"),
    (checks.inputs_are_not_changed, ChangesTheValues, "changed its inputs"),
    (checks.inputs_are_not_changed, ChangesTheRewards, "changed its inputs"),
]


@pytest.mark.parametrize(("check", "make", "told"), VALUED_BROKEN)
def test_a_broken_advantage_of_values_is_caught(trial, check, make, told):
    trial.fails(check, CASE, make, told, VALUED)


def test_an_advantage_of_values_gets_them_and_passes(trial):
    skips = [
        checks.zero_mean_within_a_group,
        checks.equal_rewards_give_exactly_zero,
        checks.nearly_equal_rewards_stay_bounded,
    ]
    trial.passes(AdvantageSuite, CASE, Valued, VALUED, skips=skips)


def test_every_check_catches_something():
    caught = {check for check, _, _ in [*BROKEN, *VALUED_BROKEN]}
    assert caught == set(AdvantageSuite.checks)


def test_an_advantage_that_compares_no_members_is_spared_those_checks(trial):
    class Alone(Good):
        group_relative = False

        def __call__(self, group, values):
            return self.result(group.rewards)

    alone = AdvantageComponent(name="alone", target="toy:Alone", group_relative=False)
    skips = [
        checks.zero_mean_within_a_group,
        checks.equal_rewards_give_exactly_zero,
        checks.nearly_equal_rewards_stay_bounded,
        checks.returns_come_with_values,
    ]
    trial.passes(AdvantageSuite, CASE, Alone, alone, skips=skips)
