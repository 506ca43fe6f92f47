"""Options that cannot work, or would do nothing, are refused with the reason."""

import pytest

from axisrl.config.losses import LossConfig
from axisrl_grpo.config import (
    CispoLossConfig,
    GroupAdvantageConfig,
    Grpo2LossConfig,
    GrpoLossConfig,
    GspoLossConfig,
    Kimi25LossConfig,
    TurnAdvantageConfig,
)

LOSSES = [GrpoLossConfig, Grpo2LossConfig, GspoLossConfig, CispoLossConfig, Kimi25LossConfig]
ADVANTAGES = [GroupAdvantageConfig, TurnAdvantageConfig]


@pytest.mark.parametrize("config", ADVANTAGES)
@pytest.mark.parametrize("options", [{"eps": 0.0}, {"clip": -1.0}, {"eps": float("nan")}])
def test_an_advantage_needs_positive_eps_and_clip(config, options):
    with pytest.raises(ValueError, match="must be above 0"):
        config(**options)


@pytest.mark.parametrize("coef", [0.0, -1.0, float("nan")])
def test_a_share_of_the_turns_that_would_do_nothing_is_refused(coef):
    with pytest.raises(ValueError, match="use grpo/group"):
        TurnAdvantageConfig(coef=coef)


@pytest.mark.parametrize("config", LOSSES)
@pytest.mark.parametrize(
    "options",
    [{"clip_low": -0.1}, {"clip_low": 1.1}, {"clip_high": -0.1}, {"clip_high": float("nan")}],
)
def test_clip_bounds_outside_their_range_are_refused(config, options):
    with pytest.raises(ValueError, match=r"clip_low .* clip_high"):
        config(**options)


@pytest.mark.parametrize("dual_clip", [1.0, 0.5, -3.0])
def test_a_dual_clip_of_one_or_less_is_refused(dual_clip):
    with pytest.raises(ValueError, match="above 1, or null"):
        GrpoLossConfig(dual_clip=dual_clip)


@pytest.mark.parametrize("soft_clip", [0.9, -3.0, float("nan")])
def test_a_soft_clip_below_one_is_refused(soft_clip):
    with pytest.raises(ValueError, match="must be 1 or more"):
        Grpo2LossConfig(soft_clip=soft_clip)


@pytest.mark.parametrize("config", [LossConfig, *LOSSES])
def test_a_fixed_length_aggregation_needs_its_length(config):
    with pytest.raises(ValueError, match="needs sequence_norm"):
        config(aggregation="sequence_mean_token_sum_norm")


@pytest.mark.parametrize("config", [LossConfig, *LOSSES])
def test_a_sequence_norm_that_would_do_nothing_is_refused(config):
    with pytest.raises(ValueError, match="has no effect with aggregation"):
        config(sequence_norm=512)
