"""grpo/reinforce-pp and grpo/reinforce-pp-baseline: before the core whitens them."""

import pytest

from axisrl.config.base import NoConfig
from axisrl.errors import RunFailed
from axisrl_grpo.advantages.reinforce_pp import (
    ReinforcePpAdvantage,
    ReinforcePpBaselineAdvantage,
)


@pytest.fixture
def plain(kit):
    return ReinforcePpAdvantage(NoConfig(), kit.context)


@pytest.fixture
def baseline(kit):
    return ReinforcePpBaselineAdvantage(NoConfig(), kit.context)


def test_both_leave_the_scale_to_the_whole_batch(plain, baseline):
    assert plain.whiten is baseline.whiten is True


def test_without_a_baseline_the_advantage_is_the_reward(plain, scalars):
    assert scalars(plain, [0.0, 1.0, -2.5]) == [0.0, 1.0, -2.5]


def test_without_a_baseline_a_group_of_one_will_do(plain, scalars):
    assert plain.group_relative is False
    assert scalars(plain, [1.0]) == [1.0]


def test_without_a_baseline_a_missing_reward_is_still_an_error(plain, scalars):
    with pytest.raises(RunFailed, match="rollout r1 of task t"):
        scalars(plain, [0.0, None])


def test_the_baseline_is_the_mean_of_the_group(baseline, scalars):
    assert baseline.group_relative is True
    assert scalars(baseline, [0.0, 1.0, 2.0, 5.0]) == [-2.0, -1.0, 0.0, 3.0]
