"""gsm8k/format: parts that sum to the total, and no reward without a verdict."""

import pytest

from axisrl.errors import VerifierFailure
from axisrl.types import Verdict
from axisrl_gsm8k.config import FormatRewardConfig
from axisrl_gsm8k.reward import FormatReward

RIGHT = {"correct": Verdict(score=1.0, passed=True)}
WRONG = {"correct": Verdict(score=0.0)}


@pytest.mark.parametrize(
    ("text", "verdicts", "total"),
    [
        ("#### 18", RIGHT, 1.0),
        ("#### 17", WRONG, 0.1),
        ("it is 17", WRONG, 0.0),
        ("#### seventeen", WRONG, 0.0),
        (None, WRONG, 0.0),
        ("it is 18", RIGHT, 0.9),
    ],
)
def test_correctness_and_format_add_up(context, rollout_of, text, verdicts, total):
    result = FormatReward(FormatRewardConfig(), context)(rollout_of(text), verdicts)
    assert result.total == pytest.approx(total)
    assert sum(result.parts.values()) == pytest.approx(result.total)
    assert set(result.parts) == {"correct", "format"}


def test_a_weight_of_zero_leaves_the_score_alone(context, rollout_of):
    reward = FormatReward(FormatRewardConfig(format_weight=0.0), context)
    assert reward(rollout_of("#### 17"), WRONG).total == 0.0
    assert reward(rollout_of("#### 18"), RIGHT).total == 1.0


def test_flexible_takes_a_number_anywhere(context, rollout_of):
    reward = FormatReward(FormatRewardConfig(mode="flexible"), context)
    assert reward(rollout_of("it is 17"), WRONG).total == pytest.approx(0.1)
    assert reward(rollout_of("it is odd"), WRONG).total == 0.0


def test_another_verdict_can_be_named(context, rollout_of):
    reward = FormatReward(FormatRewardConfig(verdict="boxed"), context)
    assert reward(rollout_of("#### 18"), {"boxed": RIGHT["correct"], **WRONG}).total == 1.0


def test_a_missing_verdict_is_an_error_that_names_those_there_are(context, rollout_of):
    reward = FormatReward(FormatRewardConfig(), context)
    with pytest.raises(VerifierFailure, match=r"'correct'; there are: boxed"):
        reward(rollout_of("#### 18"), {"boxed": RIGHT["correct"]})


def test_a_verdict_that_could_not_be_made_is_never_reward_zero(context, rollout_of):
    reward = FormatReward(FormatRewardConfig(), context)
    with pytest.raises(VerifierFailure, match="could not judge r: too slow"):
        reward(rollout_of("#### 18"), {"correct": Verdict(score=None, error="too slow")})


@pytest.mark.parametrize("weight", [-0.1, 1.0])
def test_a_weight_outside_its_range_is_refused(weight):
    with pytest.raises(ValueError, match="format_weight"):
        FormatRewardConfig(format_weight=weight)
