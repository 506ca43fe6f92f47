"""Options of losses that cannot work, or would do nothing, are refused with the reason."""

from dataclasses import dataclass

import pytest

from axisrl.config.losses import ClippedRatioLossConfig, LossConfig, RatioLossConfig
from axisrl.config.validate import validate
from axisrl.errors import ConfigError

EVERY = [LossConfig, RatioLossConfig, ClippedRatioLossConfig]


@pytest.mark.parametrize("config", EVERY)
def test_a_fixed_length_aggregation_needs_its_length(config):
    with pytest.raises(ValueError, match="needs sequence_norm"):
        config(aggregation="sequence_mean_token_sum_norm")
    assert config(aggregation="sequence_mean_token_sum_norm", sequence_norm=8).sequence_norm == 8


@pytest.mark.parametrize("config", EVERY)
def test_a_sequence_norm_that_would_do_nothing_is_refused(config):
    with pytest.raises(ValueError, match="has no effect with aggregation token_mean"):
        config(sequence_norm=512)


@pytest.mark.parametrize(
    "options",
    [{"clip_low": -0.1}, {"clip_low": 1.1}, {"clip_high": -0.1}, {"clip_high": float("nan")}],
)
def test_clip_bounds_outside_their_range_are_refused(options):
    with pytest.raises(ValueError, match=r"clip_low .* clip_high"):
        ClippedRatioLossConfig(**options)


@pytest.mark.parametrize("dual_clip", [1.0, 0.5, -3.0])
def test_a_dual_clip_of_one_or_less_is_refused(dual_clip):
    with pytest.raises(ValueError, match="above 1, or null"):
        ClippedRatioLossConfig(dual_clip=dual_clip)


def test_a_component_s_own_options_stand_on_them_and_are_validated_like_any_other():
    @dataclass(frozen=True, kw_only=True, slots=True)
    class Own(RatioLossConfig):
        threshold: float = 1.0

    own = validate(Own, {"threshold": 2, "base": "rollout"}, path="loss", origins={})
    assert (own.threshold, own.base, own.aggregation) == (2.0, "rollout", "token_mean")
    with pytest.raises(ConfigError, match=r"unknown key loss\.treshold"):
        validate(Own, {"treshold": 2}, path="loss", origins={})
    with pytest.raises(ConfigError, match="needs sequence_norm"):
        validate(Own, {"aggregation": "sequence_mean_token_sum_norm"}, path="loss", origins={})
