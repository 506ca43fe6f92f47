import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axisrl.errors import ConfigError, VerifierFailure
from axisrl.runtime.rewards import checked, combined
from axisrl.types import RewardResult

RIGHT = RewardResult(total=1.5, parts={"exact": 1.0, "env.said": 0.5})


def test_the_only_reward_keeps_the_names_of_its_parts_whatever_it_is_called():
    assert combined({"other": RIGHT}, {}) == RIGHT
    assert combined({"other": RewardResult(total=2.0)}, {}) == RewardResult(total=2.0)


def test_several_rewards_are_summed_by_weight_and_their_parts_add_up():
    results = {
        "main": RIGHT,
        "length": RewardResult(total=-0.5),
        "style": RewardResult(total=3.0, parts={"tone": 1.0, "words": 2.0}),
    }
    earned = combined(results, {"length": 2.0, "style": 0.5})
    assert earned.total == 1.5 - 1.0 + 1.5
    assert earned.parts == {
        "exact": 1.0,
        "env.said": 0.5,
        "length": -1.0,
        "style.tone": 0.5,
        "style.words": 1.0,
    }
    assert earned.per_turn is None


def test_a_main_reward_without_parts_is_a_part_beside_others():
    earned = combined({"main": RewardResult(total=1.0), "length": RewardResult(total=-0.5)}, {})
    assert earned.parts == {"main": 1.0, "length": -0.5}


def test_a_single_reward_is_weighted_with_its_parts():
    assert combined({"main": RIGHT}, {"main": -2.0}).parts == {"exact": -2.0, "env.said": -1.0}


def test_two_parts_of_one_name_are_an_error_and_not_overwritten():
    results = {"main": RIGHT, "exact": RewardResult(total=1.0)}
    with pytest.raises(ConfigError, match=r"rewards\.exact logs 'exact'") as caught:
        combined(results, {})
    assert caught.value.fix == "give rewards.exact another name"


def test_turn_rewards_add_up_and_the_others_stay_for_the_end():
    results = {
        "main": RewardResult(total=3.0, per_turn=(1.0, 0.5)),
        "steps": RewardResult(total=2.0, per_turn=(2.0, 0.0)),
        "length": RewardResult(total=-0.25),
    }
    earned = combined(results, {"steps": 0.5})
    assert earned.per_turn == (2.0, 0.5)
    assert earned.total - sum(earned.per_turn) == 1.25  # 1.5 of main, -0.25 of length


@given(
    st.dictionaries(
        st.sampled_from("abcde"),
        st.tuples(st.floats(-1e3, 1e3), st.floats(-10, 10)),
        min_size=2,
    )
)
def test_parts_add_up_to_the_total(rewards):
    results = {name: RewardResult(total=total) for name, (total, _) in rewards.items()}
    earned = combined(results, {name: weight for name, (_, weight) in rewards.items()})
    assert math.isclose(math.fsum(earned.parts.values()), earned.total, abs_tol=1e-9)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (RewardResult(total=math.nan), "reward style: its total is nan"),
        (RewardResult(total=0.0, parts={"tone": math.inf}), "reward style: its part tone is inf"),
        (RewardResult(total=0.0, per_turn=(0.0, math.nan)), "reward style: its turn 1 is nan"),
        (RewardResult(total=0.0, per_turn=(0.0,)), "style gave 1 turns of a rollout that has 2"),
        (RewardResult(total=0.0, per_turn=()), "style gave 0 turns of a rollout that has 2"),
    ],
)
def test_a_result_that_is_not_sound_is_that_rewards_failure(result, told):
    with pytest.raises(VerifierFailure, match=told):
        checked("style", result, 2)


def test_a_sound_result_is_passed_on():
    result = RewardResult(total=0.0, parts={"a": 0.0}, per_turn=(0.0, 0.0))
    assert checked("style", result, 2) is result
