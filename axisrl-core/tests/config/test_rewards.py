import pytest

from axisrl.config.rewards import check_reward_weights


def test_rewards_need_no_weight_and_may_have_one():
    check_reward_weights({"main": 1, "length": 1}, {})
    check_reward_weights({"main": 1, "length": 1}, {"length": -0.5})


def test_a_name_like_no_reward_is_refused_without_a_guess():
    with pytest.raises(ValueError, match=r"reward_weights\.xyz weighs no reward.* has main$"):
        check_reward_weights({"main": 1}, {"xyz": 1.0})


def test_no_reward_at_all_is_refused():
    with pytest.raises(ValueError, match=r"set rewards\.main"):
        check_reward_weights({}, {})
