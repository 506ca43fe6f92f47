"""grpo/rloo: rewards against the mean of the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axisrl.config.base import NoConfig
from axisrl_grpo.advantages.rloo import RlooAdvantage


@pytest.fixture(scope="session")
def advantages(kit, scalars):
    return lambda rewards: scalars(RlooAdvantage(NoConfig(), kit.context), rewards)


def test_of_two_rewards_each_is_the_other_s_baseline(advantages):
    assert advantages([0.0, 1.0]) == [-1.0, 1.0]


def test_the_one_success_is_measured_against_failures_alone(advantages):
    assert advantages([0.0, 0.0, 0.0, 1.0]) == pytest.approx([-1 / 3, -1 / 3, -1 / 3, 1.0])


@pytest.mark.parametrize("reward", [0.35, 0.4, 0.3])
def test_seven_equal_rewards_and_one_zero_stay_bounded(advantages, reward):
    assert advantages([reward] * 7 + [0.0]) == pytest.approx([reward / 7] * 7 + [-reward])


@given(st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=16))
def test_advantages_equal_the_leave_one_out_mean_written_out(advantages, rewards):
    others = [rewards[:i] + rewards[i + 1 :] for i in range(len(rewards))]
    expected = [r - sum(rest) / len(rest) for r, rest in zip(rewards, others, strict=True)]
    assert advantages(rewards) == pytest.approx(expected, abs=1e-4)
