"""grpo/grpo2 against the golden ratios, an independent reference, and poisoned positions."""

import math

import numpy as np
import pytest
import torch

from axisrl_grpo.config import Grpo2LossConfig
from axisrl_grpo.losses.grpo2 import Grpo2Loss


@pytest.fixture(scope="module")
def make(kit):
    return lambda **options: Grpo2Loss(Grpo2LossConfig(**options), kit.context)


def test_ratios_one_and_a_half_and_one_half_are_both_clipped_and_lose_their_gradient(
    make, kit, mean_of
):
    batch = kit.tokens(np.log([1.5, 0.5]), [1.0, -1.0])
    result, values, gradient = kit.run(make(), batch)
    assert values.tolist() == pytest.approx([-1.2 * batch.current[0], 0.8 * batch.current[1]])
    assert gradient.tolist() == [0.0, 0.0]
    assert mean_of(result, "clip_fraction") == 1.0


def test_a_clip_on_the_wrong_side_of_the_advantage_does_not_stop_the_gradient(make, kit, mean_of):
    result, _, gradient = kit.run(make(), kit.tokens(np.log([1.5, 0.5]), [-1.0, 1.0]))
    assert gradient.tolist() == pytest.approx([1.5, -0.5])
    assert mean_of(result, "clip_fraction") == 0.0


def test_a_bad_token_that_became_far_likelier_is_capped_and_still_pushed_down(make, kit, mean_of):
    result, _, gradient = kit.run(make(), kit.tokens(np.log([5.0, 2.5]), [-1.0, -1.0]))
    assert gradient.tolist() == pytest.approx([3.0, 2.5])
    assert mean_of(result, "soft_clip_fraction") == 0.5
    assert mean_of(result, "clip_fraction") == 0.0


def test_the_first_update_of_a_window_has_ratio_exactly_one_and_ppo_kl_zero(make, kit):
    batch = kit.tokens(np.zeros(16), np.ones(16), base=-1.7)
    result, _, gradient = kit.run(make(clip_low=0.0, clip_high=0.0), batch, torch.float32)
    assert result.stats["ratio"].values_N.eq(1).all()
    assert result.stats["ppo_kl"].values_N.eq(0).all()
    assert gradient.tolist() == [-1.0] * 16


def test_a_base_of_rollout_needs_nothing(make):
    assert make(base="rollout").needs == frozenset()
    assert make().needs == {"old_logprobs"}


@pytest.mark.parametrize("log_ratio", [1e4, -1e4])
def test_a_huge_log_ratio_at_a_trained_position_stays_finite(make, kit, log_ratio):
    _, values, gradient = kit.run(make(), kit.tokens([log_ratio], [-1.0]), torch.float32)
    assert np.isfinite([values, gradient]).all()
    assert abs(gradient[0]) <= 3


def test_masked_positions_change_nothing_whatever_they_hold(make, kit):
    kit.require_masked_nothing(make())


def test_all_positions_masked_gives_loss_zero_and_gradient_zero(make, kit):
    kit.require_all_masked_is_zero(make())


def rule(low, high, soft):
    def of(lp, ratio, advantage, at):
        flat = False
        if advantage >= 0 and ratio > 1:
            weight, flat = min(ratio, 1 + high), at > 1 + high
        elif advantage >= 0:
            weight = ratio
        elif ratio > 1:
            weight = min(ratio, soft)
        else:
            weight, flat = max(ratio, 1 - low), at < 1 - low
        return -advantage * weight * lp, 0.0 if flat else -advantage * weight

    return of


@pytest.mark.parametrize("seed", range(200))
def test_value_and_gradient_equal_an_independent_reference(make, kit, seed):
    rng = np.random.default_rng(seed)
    low, high, soft = float(rng.uniform(0, 0.9)), float(rng.uniform(0, 2)), rng.uniform(1, 4)
    base = ("old", "rollout")[seed % 2]
    edges = (1 - low, 1.0, 1 + high, soft)
    batch = kit.random_columns(seed, borders=[math.log(edge) for edge in edges])
    loss = make(clip_low=low, clip_high=high, soft_clip=float(soft), base=base)
    kit.require_reference(loss, batch, kit.by_token(rule(low, high, soft), base))
