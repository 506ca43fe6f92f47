from pathlib import Path

from axisrl.builtin.reward_advantage import RewardAdvantage
from axisrl.config.base import NoConfig
from axisrl.testing.advantage import group_of
from axisrl.types import BuildContext


def test_the_advantage_is_the_reward():
    advantage = RewardAdvantage(NoConfig(), BuildContext(run_dir=Path()))
    result = advantage(group_of([0.25, -1.0]), None)
    assert [float(entry) for entry in result.advantages] == [0.25, -1.0]
