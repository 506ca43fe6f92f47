"""grpo/group: the golden values, its clip, and an independent computation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from axisrl_grpo.advantages.group import GroupAdvantage
from axisrl_grpo.config import GroupAdvantageConfig


@pytest.fixture(scope="session")
def advantages(kit, scalars):
    def run(rewards, **options):
        return scalars(GroupAdvantage(GroupAdvantageConfig(**options), kit.context), rewards)

    return run


def test_rewards_zero_and_one_give_plus_and_minus_0_7071(advantages):
    assert advantages([0.0, 1.0]) == pytest.approx([-0.7071, 0.7071], abs=1e-5)


@pytest.mark.parametrize("reward", [0.35, 0.4, 0.3])
def test_seven_equal_rewards_and_one_zero_stay_bounded(advantages, reward):
    values = advantages([reward] * 7 + [0.0])
    assert max(map(abs, values)) < 10
    assert values[-1] == pytest.approx(-7 / 8**0.5, rel=1e-4)


def test_one_success_in_a_large_group_is_clipped_at_five(advantages):
    assert max(advantages([0.0] * 63 + [1.0])) == 5.0
    assert max(advantages([0.0] * 63 + [1.0], clip=2.0)) == 2.0


def test_rewards_that_differ_by_float_noise_alone_do_not_become_a_signal(advantages):
    noise = float(np.nextafter(np.float32(0.3), np.float32(1)))
    assert max(map(abs, advantages([0.3, noise]))) < 0.05


def test_a_reward_of_zero_is_a_reward(advantages):
    """Pitfall 12."""
    assert advantages([0.0, 0.0, 1.0])[0] < 0


@given(st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=16))
def test_advantages_equal_an_independent_computation(advantages, rewards):
    mean = sum(rewards) / len(rewards)
    std = (sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)) ** 0.5
    same = len(set(rewards)) == 1
    expected = [0.0 if same else (reward - mean) / (std + 1e-6) for reward in rewards]
    assert advantages(rewards) == pytest.approx(expected, abs=1e-5)
