"""Options that cannot work, or would do nothing, are refused with the reason."""

import pytest

from axisrl_grpo.config import GroupAdvantageConfig, GrpoLossConfig


@pytest.mark.parametrize("options", [{"eps": 0.0}, {"clip": -1.0}, {"eps": float("nan")}])
def test_an_advantage_needs_positive_eps_and_clip(options):
    with pytest.raises(ValueError, match="must be above 0"):
        GroupAdvantageConfig(**options)


@pytest.mark.parametrize("options", [{"clip_low": -0.1}, {"clip_low": 1.1}, {"clip_high": -0.1}])
def test_clip_bounds_outside_their_range_are_refused(options):
    with pytest.raises(ValueError, match=r"clip_low .* clip_high"):
        GrpoLossConfig(**options)


@pytest.mark.parametrize("dual_clip", [1.0, 0.5, -3.0])
def test_a_dual_clip_of_one_or_less_is_refused(dual_clip):
    with pytest.raises(ValueError, match="above 1, or null"):
        GrpoLossConfig(dual_clip=dual_clip)


def test_a_fixed_length_aggregation_needs_its_length():
    with pytest.raises(ValueError, match="needs sequence_norm"):
        GrpoLossConfig(aggregation="sequence_mean_token_sum_norm")


def test_a_sequence_norm_that_would_do_nothing_is_refused():
    with pytest.raises(ValueError, match="has no effect with aggregation token_mean"):
        GrpoLossConfig(sequence_norm=512)
