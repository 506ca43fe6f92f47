"""grpo/group: the golden values, and what equal, noisy or missing rewards do."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from axisrl.errors import ConfigError, RunFailed
from axisrl.types import BuildContext, Outcome, RolloutGroup, RolloutSummary
from axisrl_grpo.advantage import GroupAdvantage
from axisrl_grpo.config import GroupAdvantageConfig

CONTEXT = BuildContext(run_dir=Path("unused"))


def group_of(rewards):
    members = tuple(
        RolloutSummary(
            id=f"r{index}",
            task_id="t",
            group=0,
            member=index,
            outcome=Outcome.COMPLETED,
            reward=reward,
        )
        for index, reward in enumerate(rewards)
    )
    return RolloutGroup(group=0, task_id="t", members=members)


def advantages(rewards, **options):
    advantage = GroupAdvantage(GroupAdvantageConfig(**options), CONTEXT)
    return [float(value) for value in advantage(group_of(rewards), None).advantages]


def test_rewards_zero_and_one_give_plus_and_minus_0_7071():
    assert advantages([0.0, 1.0]) == pytest.approx([-0.7071, 0.7071], abs=1e-5)


def test_advantages_are_float32_scalars_one_a_member_and_there_are_no_returns():
    result = GroupAdvantage(GroupAdvantageConfig(), CONTEXT)(group_of([0.0, 1.0, 1.0]), None)
    assert [(value.shape, value.dtype) for value in result.advantages] == [((), np.float32)] * 3
    assert result.returns is None


@pytest.mark.parametrize("reward", [0.0, 0.1, 0.2, 0.35, 1.0, -3.7, 1e6])
@pytest.mark.parametrize("size", [2, 3, 7, 8, 16])
def test_equal_float_rewards_give_exactly_zero(reward, size):
    assert advantages([reward] * size) == [0.0] * size


@pytest.mark.parametrize("reward", [0.35, 0.4, 0.3])
def test_seven_equal_rewards_and_one_zero_stay_bounded(reward):
    values = advantages([reward] * 7 + [0.0])
    assert max(map(abs, values)) < 10
    assert values[-1] == pytest.approx(-7 / 8**0.5, rel=1e-4)


def test_one_success_in_a_large_group_is_clipped_at_five():
    assert max(advantages([0.0] * 63 + [1.0])) == 5.0
    assert max(advantages([0.0] * 63 + [1.0], clip=2.0)) == 2.0


def test_rewards_that_differ_by_float_noise_alone_do_not_become_a_signal():
    assert max(map(abs, advantages([0.3, float(np.nextafter(np.float32(0.3), 1))]))) < 0.05


def test_a_group_of_one_is_a_config_error_that_says_what_to_set():
    with pytest.raises(ConfigError, match=r"group of task t has 1(.|\n)*rollout.group_size"):
        advantages([1.0])


@pytest.mark.parametrize("reward", [None, float("nan"), float("inf")])
def test_a_missing_or_infinite_reward_is_an_error_naming_the_rollout(reward):
    with pytest.raises(RunFailed, match="rollout r1 of task t"):
        advantages([0.0, reward])


def test_a_reward_of_zero_is_a_reward():
    assert advantages([0.0, 0.0, 1.0])[0] < 0


rewards_lists = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=16)


@given(rewards_lists)
def test_advantages_equal_an_independent_computation(rewards):
    mean = sum(rewards) / len(rewards)
    std = (sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)) ** 0.5
    same = len(set(rewards)) == 1
    expected = [0.0 if same else (reward - mean) / (std + 1e-6) for reward in rewards]
    assert advantages(rewards) == pytest.approx(expected, abs=1e-5)


@given(rewards_lists)
def test_members_in_another_order_get_the_same_advantages(rewards):
    assert advantages(rewards[::-1]) == pytest.approx(advantages(rewards)[::-1], abs=1e-6)


@given(rewards_lists)
def test_a_group_sums_to_zero(rewards):
    assert sum(advantages(rewards)) == pytest.approx(0, abs=1e-4)
