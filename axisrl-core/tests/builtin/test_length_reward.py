import pytest

from axisrl.builtin.config import LengthRewardConfig
from axisrl.builtin.length_reward import LengthReward
from axisrl.types import BuildContext


@pytest.fixture
def earned(rollout_of_tokens):
    def earned(*turns, **options):
        reward = LengthReward(LengthRewardConfig(**options), BuildContext(run_dir="."))
        return reward(rollout_of_tokens(*turns), {}).total

    return earned


@pytest.mark.parametrize(
    ("tokens", "total"),
    [(0, 0.0), (10, 0.0), (11, -0.25), (13, -0.75), (16, -1.5), (17, -1.5), (1000, -1.5)],
)
def test_each_token_beyond_the_free_ones_costs_the_coefficient_up_to_the_cap(earned, tokens, total):
    assert earned(tokens, free_tokens=10, coef=0.25, cap=1.5) == total


def test_tokens_of_all_turns_count_and_what_was_shown_does_not(earned):
    assert earned(3, 4, 5, free_tokens=10, coef=0.25) == -0.5


def test_no_penalty_is_plain_zero(earned):
    assert str(earned(5, free_tokens=10)) == "0.0"


@pytest.mark.parametrize("options", [{"free_tokens": -1}, {"coef": 0}, {"cap": 0}])
def test_options_that_penalise_nothing_are_refused(options):
    with pytest.raises(ValueError, match="must be"):
        LengthRewardConfig(**options)
