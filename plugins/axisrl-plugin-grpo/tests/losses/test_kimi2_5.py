"""grpo/kimi2-5 against the golden ratios, an independent reference, and poisoned positions."""

import math

import numpy as np
import pytest
import torch

from axisrl_grpo.config import Kimi25LossConfig
from axisrl_grpo.losses.kimi2_5 import Kimi25Loss

NARROW = {"clip_low": 0.2, "clip_high": 0.2}


@pytest.fixture(scope="module")
def make(kit):
    return lambda **options: Kimi25Loss(Kimi25LossConfig(**options), kit.context)


def test_ratios_one_and_a_half_and_one_half_are_both_clipped_and_lose_their_gradient(
    make, kit, mean_of
):
    batch = kit.tokens(np.log([1.5, 0.5]), [1.0, -1.0])
    result, values, gradient = kit.run(make(**NARROW), batch)
    assert values.tolist() == pytest.approx([-1.2 * batch.current[0], 0.8 * batch.current[1]])
    assert gradient.tolist() == [0.0, 0.0]
    assert mean_of(result, "clip_fraction") == 1.0


def test_the_side_of_the_advantage_makes_no_difference(make, kit):
    gradient = kit.run(make(**NARROW), kit.tokens(np.log([1.5, 0.5]), [-1.0, 1.0]))[2]
    assert gradient.tolist() == [0.0, 0.0]


def test_a_ratio_that_the_clip_moves_by_less_than_1e_5_keeps_its_gradient(make, kit, mean_of):
    batch = kit.tokens(np.log([1.2 + 0.5e-5, 1.2 + 2e-5, 0.8 - 0.5e-5, 0.8 - 2e-5]), np.ones(4))
    result, _, gradient = kit.run(make(**NARROW), batch)
    assert gradient.tolist() == pytest.approx([-1.2, 0.0, -0.8, 0.0])
    assert mean_of(result, "clip_fraction") == 0.5


def test_a_ratio_inside_the_range_weighs_the_gradient(make, kit):
    gradient = kit.run(make(), kit.tokens(np.log([1.9, 0.6]), [1.0, -1.0]))[2]
    assert gradient.tolist() == pytest.approx([-1.9, 0.6])


def test_the_ratio_is_always_measured_from_the_rollout(make):
    assert make().needs == frozenset()
    with pytest.raises(TypeError, match="unexpected keyword argument 'base'"):
        make(base="old")


def test_the_first_update_of_a_window_has_ratio_exactly_one_and_ppo_kl_zero(make, kit):
    batch = kit.tokens(np.zeros(16), np.ones(16), base=-1.7)
    result, _, gradient = kit.run(make(), batch, torch.float32)
    assert result.stats["ratio"].values_N.eq(1).all()
    assert result.stats["ppo_kl"].values_N.eq(0).all()
    assert gradient.tolist() == [-1.0] * 16


@pytest.mark.parametrize("log_ratio", [1e4, -1e4])
def test_a_huge_log_ratio_at_a_trained_position_stays_finite(make, kit, log_ratio):
    _, values, gradient = kit.run(make(), kit.tokens([log_ratio], [-1.0]), torch.float32)
    assert np.isfinite(values).all()
    assert gradient.tolist() == [0.0]


def test_masked_positions_change_nothing_whatever_they_hold(make, kit):
    kit.require_masked_nothing(make())


def test_all_positions_masked_gives_loss_zero_and_gradient_zero(make, kit):
    kit.require_all_masked_is_zero(make())


def rule(low, high):
    def of(lp, ratio, advantage, at):
        weight = min(max(ratio, 1 - low), 1 + high)
        moved = abs(min(max(at, 1 - low), 1 + high) - at)
        slope = 0.0 if moved > 1e-5 else -advantage * weight
        return -advantage * weight * lp, slope

    return of


@pytest.mark.parametrize("seed", range(200))
def test_value_and_gradient_equal_an_independent_reference(make, kit, seed):
    rng = np.random.default_rng(seed)
    low, high = float(rng.uniform(0, 0.9)), float(rng.uniform(0, 2))
    edges = (1 - low, 1 - low - 1e-5, 1 + high, 1 + high + 1e-5)
    batch = kit.random_columns(seed, borders=[math.log(edge) for edge in edges])
    loss = make(clip_low=low, clip_high=high)
    kit.require_reference(loss, batch, kit.by_token(rule(low, high), "rollout"))
