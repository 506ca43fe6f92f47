"""Golden numbers of the soft overlong punishment: arXiv 2503.14476, equation 13."""

import pytest

from axisrl.builtin.config import OverlongRewardConfig
from axisrl.builtin.overlong_reward import OverlongReward
from axisrl.types import BuildContext


@pytest.fixture
def earned(rollout_of_tokens):
    def earned(*turns, **options):
        config = OverlongRewardConfig(**{"max_tokens": 20, "cache_tokens": 4} | options)
        reward = OverlongReward(config, BuildContext(run_dir="."))
        return reward(rollout_of_tokens(*turns), {}).total

    return earned


@pytest.mark.parametrize(
    ("tokens", "total"),
    [(0, 0.0), (16, 0.0), (17, -0.25), (18, -0.5), (19, -0.75), (20, -1.0), (21, -1.0), (99, -1.0)],
)
def test_the_punishment_grows_over_the_cache_and_stays(earned, tokens, total):
    assert earned(tokens) == total


def test_the_papers_setting(earned):
    """20480 tokens at most, the last 4096 of them punished more and more."""
    paper = {"max_tokens": 20480, "cache_tokens": 4096}
    assert earned(16384, **paper) == 0.0
    assert earned(17408, **paper) == -0.25
    assert earned(20480, **paper) == -1.0


def test_the_penalty_scales_it(earned):
    assert earned(18, penalty=0.5) == -0.25
    assert earned(50, penalty=0.5) == -0.5


def test_without_a_cache_it_is_a_step_beyond_the_limit(earned):
    assert earned(20, cache_tokens=0) == 0.0
    assert earned(21, cache_tokens=0) == -1.0


def test_tokens_of_all_turns_count_and_what_was_shown_does_not(earned):
    assert earned(9, 9) == -0.5


def test_a_ramp_longer_than_the_limit_and_a_penalty_of_nothing_are_refused():
    with pytest.raises(ValueError, match=r"cache_tokens 30 is not in \[0, max_tokens 20\]"):
        OverlongRewardConfig(max_tokens=20, cache_tokens=30)
    with pytest.raises(ValueError, match="penalty 0 is not above 0"):
        OverlongRewardConfig(max_tokens=20, cache_tokens=4, penalty=0)
