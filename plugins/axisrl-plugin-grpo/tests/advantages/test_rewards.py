"""What every advantage that compares a group does with equal, missing and reordered rewards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from axisrl.config.base import NoConfig
from axisrl.errors import ConfigError, RunFailed
from axisrl_grpo.advantages.dr_grpo import DrGrpoAdvantage
from axisrl_grpo.advantages.group import GroupAdvantage
from axisrl_grpo.advantages.reinforce_pp import ReinforcePpBaselineAdvantage
from axisrl_grpo.advantages.rewards import standardised
from axisrl_grpo.advantages.rloo import RlooAdvantage
from axisrl_grpo.config import GroupAdvantageConfig

NAMES = {
    GroupAdvantage: "grpo/group",
    DrGrpoAdvantage: "grpo/dr-grpo",
    RlooAdvantage: "grpo/rloo",
    ReinforcePpBaselineAdvantage: "grpo/reinforce-pp-baseline",
}


@pytest.fixture(scope="session", params=NAMES, ids=NAMES.values())
def advantage(request, kit):
    config = GroupAdvantageConfig() if request.param is GroupAdvantage else NoConfig()
    return request.param(config, kit.context)


def test_advantages_are_float32_scalars_one_a_member_and_there_are_no_returns(advantage, kit):
    result = advantage(kit.group_of([0.0, 1.0, 1.0]), None)
    assert [(value.shape, value.dtype) for value in result.advantages] == [((), np.float32)] * 3
    assert result.returns is None


@pytest.mark.parametrize("reward", [0.0, 0.1, 0.2, 0.35, 1.0, -3.7, 1e6])
@pytest.mark.parametrize("size", [2, 3, 7, 8, 16])
def test_equal_float_rewards_give_exactly_zero(advantage, scalars, reward, size):
    assert scalars(advantage, [reward] * size) == [0.0] * size


def test_a_group_of_one_is_a_config_error_that_says_what_to_set(advantage, scalars):
    name = NAMES[type(advantage)]
    with pytest.raises(ConfigError, match=rf"{name}(.|\n)*task t has 1(.|\n)*rollout.group_size"):
        scalars(advantage, [1.0])


@pytest.mark.parametrize("reward", [None, float("nan"), float("inf")])
def test_a_missing_or_infinite_reward_is_an_error_naming_the_rollout(advantage, scalars, reward):
    with pytest.raises(RunFailed, match="rollout r1 of task t"):
        scalars(advantage, [0.0, reward])


rewards_lists = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=16)


@given(rewards_lists)
def test_members_in_another_order_get_the_same_advantages(advantage, scalars, rewards):
    forth, back = scalars(advantage, rewards), scalars(advantage, rewards[::-1])
    assert back == pytest.approx(forth[::-1], abs=1e-5)


@given(rewards_lists)
def test_a_group_sums_to_zero(advantage, scalars, rewards):
    assert sum(scalars(advantage, rewards)) == pytest.approx(0, abs=1e-3)


def test_a_single_reward_stands_at_zero_without_a_warning(recwarn):
    assert standardised(np.array([3.0]), 1e-6, 5.0).tolist() == [0.0]
    assert not recwarn
