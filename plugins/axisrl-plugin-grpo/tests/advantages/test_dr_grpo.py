"""grpo/dr-grpo: rewards against their mean, in units of reward."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axisrl.config.base import NoConfig
from axisrl_grpo.advantages.dr_grpo import DrGrpoAdvantage


@pytest.fixture(scope="session")
def advantages(kit, scalars):
    return lambda rewards: scalars(DrGrpoAdvantage(NoConfig(), kit.context), rewards)


def test_rewards_zero_and_one_give_plus_and_minus_one_half(advantages):
    assert advantages([0.0, 1.0]) == [-0.5, 0.5]


def test_there_is_no_standard_deviation_so_a_small_spread_stays_small(advantages):
    assert advantages([0.0, 0.01]) == pytest.approx([-0.005, 0.005])


@pytest.mark.parametrize("reward", [0.35, 0.4, 0.3])
def test_seven_equal_rewards_and_one_zero_stay_bounded(advantages, reward):
    assert advantages([reward] * 7 + [0.0]) == pytest.approx([reward / 8] * 7 + [-reward * 7 / 8])


@given(st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=16))
def test_advantages_equal_an_independent_computation(advantages, rewards):
    expected = [reward - sum(rewards) / len(rewards) for reward in rewards]
    assert advantages(rewards) == pytest.approx(expected, abs=1e-4)
