"""Options that cannot work, or would do nothing, are refused with the reason."""

import pytest

from axisrl_ppo.config import GaeConfig, PpoLossConfig, ValueLossConfig


@pytest.mark.parametrize("options", [{"gamma": 1.1}, {"gamma": -0.1}, {"lam": 2.0}])
def test_gamma_and_lambda_are_shares(options):
    with pytest.raises(ValueError, match=r"(gamma|lam) .* is not in \[0, 1\]"):
        GaeConfig(**options)


def test_advantages_are_whitened_and_nothing_is_bootstrapped_unless_said_otherwise():
    config = GaeConfig()
    assert (config.gamma, config.lam, config.whiten) == (1.0, 1.0, True)
    assert not config.bootstrap_truncated


def test_there_is_no_dual_clip_unless_it_is_asked_for():
    assert PpoLossConfig().dual_clip is None


def test_the_policy_loss_refuses_what_every_clipped_loss_refuses():
    with pytest.raises(ValueError, match="above 1, or null"):
        PpoLossConfig(dual_clip=0.5)
    with pytest.raises(ValueError, match="needs sequence_norm"):
        PpoLossConfig(aggregation="sequence_mean_token_sum_norm")


@pytest.mark.parametrize("clip", [0.0, -0.2])
def test_a_value_clip_that_would_stop_every_value_is_refused(clip):
    with pytest.raises(ValueError, match="above 0, or null"):
        ValueLossConfig(clip=clip)


def test_a_value_loss_that_weighs_nothing_is_refused():
    with pytest.raises(ValueError, match=r"coef .* must be above 0"):
        ValueLossConfig(coef=0.0)
    with pytest.raises(ValueError, match="has no effect with aggregation token_mean"):
        ValueLossConfig(sequence_norm=5)
