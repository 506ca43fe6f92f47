"""grpo/topr against the golden ratios, an independent reference, and poisoned positions."""

import numpy as np
import pytest
import torch

from axisrl.config.losses import RatioLossConfig
from axisrl_grpo.losses.topr import ToprLoss


@pytest.fixture(scope="module")
def make(kit):
    return lambda **options: ToprLoss(RatioLossConfig(**options), kit.context)


def test_good_rollouts_count_in_full_and_bad_ones_by_a_ratio_of_at_most_one(make, kit):
    batch = kit.tokens(np.log([1.5, 0.5, 1.5, 0.5]), [1.0, 1.0, -1.0, -1.0])
    _, values, gradient = kit.run(make(), batch)
    weights = [-1.0, -1.0, 1.0, 0.5]
    assert gradient.tolist() == pytest.approx(weights)
    assert values.tolist() == pytest.approx(weights * batch.current)


def test_an_advantage_of_zero_loses_nothing_and_is_not_clipped(make, kit, mean_of):
    result, values, gradient = kit.run(make(), kit.tokens([2.0, -2.0], [0.0, 0.0]))
    assert values.tolist() == gradient.tolist() == [0.0, 0.0]
    assert mean_of(result, "clip_fraction") == 0.0


def test_the_clip_fraction_counts_bad_tokens_whose_ratio_was_cut(make, kit, mean_of):
    batch = kit.tokens(np.log([1.5, 0.5, 1.5, 0.5]), [1.0, 1.0, -1.0, -1.0])
    assert mean_of(kit.run(make(), batch)[0], "clip_fraction") == 0.25


def test_the_first_update_of_a_window_has_ratio_exactly_one_and_ppo_kl_zero(make, kit):
    batch = kit.tokens(np.zeros(16), -np.ones(16), base=-1.7)
    result, _, gradient = kit.run(make(), batch, torch.float32)
    assert result.stats["ratio"].values_N.eq(1).all()
    assert result.stats["ppo_kl"].values_N.eq(0).all()
    assert gradient.tolist() == [1.0] * 16


def test_a_base_of_rollout_needs_nothing(make):
    assert make(base="rollout").needs == frozenset()
    assert make().needs == {"old_logprobs"}


@pytest.mark.parametrize("log_ratio", [1e4, -1e4])
def test_a_huge_log_ratio_at_a_trained_position_stays_finite(make, kit, log_ratio):
    _, values, gradient = kit.run(make(), kit.tokens([log_ratio], [-1.0]), torch.float32)
    assert np.isfinite([values, gradient]).all()
    assert abs(gradient[0]) <= 1


def test_masked_positions_change_nothing_whatever_they_hold(make, kit):
    kit.require_masked_nothing(make())


def test_all_positions_masked_gives_loss_zero_and_gradient_zero(make, kit):
    kit.require_all_masked_is_zero(make())


def rule(lp, ratio, advantage, at):
    weight = 1.0 if advantage >= 0 else min(max(ratio, 0.0), 1.0)
    return -advantage * weight * lp, -advantage * weight


@pytest.mark.parametrize("seed", range(200))
def test_value_and_gradient_equal_an_independent_reference(make, kit, seed):
    base = ("old", "rollout")[seed % 2]
    batch = kit.random_columns(seed, borders=(0.0,))
    kit.require_reference(make(base=base), batch, kit.by_token(rule, base))
