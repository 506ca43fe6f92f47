"""Each check of RewardSuite catches a reward that breaks its promise."""

import itertools

import pytest

from axisrl.testing import RewardCase, RewardSuite
from axisrl.testing import reward as checks
from axisrl.types import RewardResult, Verdict

CASE = RewardCase(
    use="toy/sum",
    verdicts={"right": Verdict(score=1.0, passed=True)},
    worse={"right": Verdict(score=0.25)},
    env_parts={"said": 0.5},
)


class Good:
    def __init__(self, context):
        pass

    def __call__(self, rollout, verdicts):
        parts = {name: verdict.score for name, verdict in verdicts.items()} | rollout.env_parts
        total = sum(parts.values())
        return RewardResult(total=total, parts=parts, per_turn=(0.0, total))


class Waiting(Good):
    async def __call__(self, rollout, verdicts):
        return super().__call__(rollout, verdicts)


class ForgetsTheEnv(Good):
    def __call__(self, rollout, verdicts):
        result = super().__call__(rollout, verdicts)
        return RewardResult(total=result.total - rollout.env_parts["said"], parts=result.parts)


class NaNPart(Good):
    def __call__(self, rollout, verdicts):
        return RewardResult(total=verdicts["right"].score, parts={"length": float("nan")})


class InfiniteTurn(Good):
    def __call__(self, rollout, verdicts):
        return RewardResult(total=1.0, per_turn=(0.0, float("inf")))


class PerTurnForTheGoodAlone(Good):
    def __call__(self, rollout, verdicts):
        result = super().__call__(rollout, verdicts)
        return result if verdicts["right"].passed else RewardResult(total=result.total)


class IgnoresTokens(Good):
    def __call__(self, rollout, verdicts):
        return RewardResult(total=0.0)


class OneEntryForAll(Good):
    def __call__(self, rollout, verdicts):
        return RewardResult(total=1.0, per_turn=(1.0,))


class PaysTheWorseMore(Good):
    def __call__(self, rollout, verdicts):
        return RewardResult(total=-verdicts["right"].score)


class ZeroIsNoScore(Good):
    """The classic slip: 0.0 is falsy."""

    def __call__(self, rollout, verdicts):
        return RewardResult(total=verdicts["right"].score or float("nan"))


class PaysZeroBest(Good):
    def __call__(self, rollout, verdicts):
        return RewardResult(total=verdicts["right"].score or 5.0)


class Drifts(Good):
    calls = itertools.count()

    def __call__(self, rollout, verdicts):
        return RewardResult(total=float(next(self.calls)))


class TakesTheVerdicts(Good):
    def __call__(self, rollout, verdicts):
        total = verdicts.pop("right", Verdict(score=1.0)).score
        return RewardResult(total=total)


BROKEN = [
    (checks.every_number_is_finite, NaNPart, "length is nan"),
    (checks.every_number_is_finite, InfiniteTurn, "turn 1 is inf"),
    (checks.parts_sum_to_the_total, ForgetsTheEnv, r"sum of the parts: off by 0\.5"),
    (checks.per_turn_has_one_entry_a_turn, OneEntryForAll, "1 entries for 2 turns"),
    (checks.per_turn_has_one_entry_a_turn, PerTurnForTheGoodAlone, "for one rollout alone"),
    (checks.the_better_rollout_earns_more, PaysTheWorseMore, r"better rollout earned -1\.0"),
    (checks.a_score_of_zero_is_a_score, ZeroIsNoScore, "earned nan"),
    (checks.a_score_of_zero_is_a_score, PaysZeroBest, r"earned 5\.0, more than"),
    (checks.same_inputs_same_result, Drifts, "two calls gave"),
    (checks.same_inputs_same_result, TakesTheVerdicts, "changed its inputs"),
]


@pytest.mark.parametrize("reward", [Good, Waiting])
def test_a_good_reward_passes_every_check(trial, reward):
    trial.passes(RewardSuite, CASE, reward)


def test_a_reward_of_length_is_tried_with_token_counts(trial):
    class Short(Good):
        def __call__(self, rollout, verdicts):
            return RewardResult(total=-float(rollout.trace.sampled_tokens))

    case = RewardCase(use="toy/short", tokens=3, worse_tokens=4, additive=False)
    skips = (checks.parts_sum_to_the_total, checks.per_turn_has_one_entry_a_turn)
    trial.passes(RewardSuite, case, Short, skips=skips)
    trial.fails(checks.the_better_rollout_earns_more, case, IgnoresTokens, r"earned 0\.0")


def test_env_parts_of_a_case_are_given_in_the_first_of_two_turns(trial):
    seen = []

    class Looks(Good):
        def __call__(self, rollout, verdicts):
            seen.append(rollout.turn_parts)
            return super().__call__(rollout, verdicts)

    trial(checks.every_number_is_finite, CASE, Looks)
    assert seen == [({"said": 0.5}, {})] * 2


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_reward_is_caught(trial, check, make, told):
    trial.fails(check, CASE, make, told)


def test_every_check_catches_something():
    assert {check for check, _, _ in BROKEN} == set(RewardSuite.checks)
