"""grpo/cispo against the golden ratios, an independent reference, and poisoned positions."""

import math

import numpy as np
import pytest
import torch

from axisrl_grpo.config import CispoLossConfig
from axisrl_grpo.losses.cispo import CispoLoss

NARROW = {"clip_low": 0.2, "clip_high": 0.2}


@pytest.fixture(scope="module")
def make(kit):
    return lambda **options: CispoLoss(CispoLossConfig(**options), kit.context)


def test_ratios_one_and_a_half_and_one_half_keep_their_gradient_at_the_clipped_weight(
    make, kit, mean_of
):
    batch = kit.tokens(np.log([1.5, 0.5]), [1.0, -1.0])
    result, values, gradient = kit.run(make(**NARROW), batch)
    assert gradient.tolist() == pytest.approx([-1.2, 0.8])
    assert values.tolist() == pytest.approx([-1.2 * batch.current[0], 0.8 * batch.current[1]])
    assert mean_of(result, "clip_fraction") == 1.0


def test_by_default_the_ratio_is_truncated_at_two_and_has_no_lower_bound(make, kit, mean_of):
    result, _, gradient = kit.run(make(), kit.tokens(np.log([8.0, 1.9, 0.01]), [1.0, 1.0, 1.0]))
    assert gradient.tolist() == pytest.approx([-2.0, -1.9, -0.01])
    assert mean_of(result, "clip_fraction") == pytest.approx(1 / 3)


def test_the_first_update_of_a_window_has_ratio_exactly_one_and_ppo_kl_zero(make, kit, mean_of):
    batch = kit.tokens(np.zeros(16), np.ones(16), base=-1.7)
    result, _, gradient = kit.run(make(**NARROW), batch, torch.float32)
    assert result.stats["ratio"].values_N.eq(1).all()
    assert result.stats["ppo_kl"].values_N.eq(0).all()
    assert mean_of(result, "clip_fraction") == 0.0
    assert gradient.tolist() == [-1.0] * 16


def test_the_largest_ratio_is_told_before_the_clip(make, kit):
    entry = kit.run(make(), kit.tokens(np.log([8.0, 1.0]), [1.0, 1.0]))[0].stats["ratio_max"]
    assert (entry.reduce, entry.values_N.max().item()) == ("max", pytest.approx(8.0))


def test_a_base_of_rollout_needs_nothing(make):
    assert make(base="rollout").needs == frozenset()
    assert make().needs == {"old_logprobs"}


@pytest.mark.parametrize("log_ratio", [1e4, -1e4])
def test_a_huge_log_ratio_at_a_trained_position_stays_finite(make, kit, log_ratio):
    _, values, gradient = kit.run(make(), kit.tokens([log_ratio], [-1.0]), torch.float32)
    assert np.isfinite([values, gradient]).all()
    assert abs(gradient[0]) <= 2


def test_masked_positions_change_nothing_whatever_they_hold(make, kit):
    kit.require_masked_nothing(make())


def test_all_positions_masked_gives_loss_zero_and_gradient_zero(make, kit):
    kit.require_all_masked_is_zero(make())


def rule(low, high):
    def of(lp, ratio, advantage, at):
        weight = min(max(ratio, 1 - low), 1 + high)
        return -advantage * weight * lp, -advantage * weight

    return of


@pytest.mark.parametrize("seed", range(200))
def test_value_and_gradient_equal_an_independent_reference(make, kit, seed):
    rng = np.random.default_rng(seed)
    low, high = float(rng.uniform(0, 0.9)), float(rng.uniform(0, 2))
    base = ("old", "rollout")[seed % 2]
    batch = kit.random_columns(seed, borders=(math.log(1 - low), math.log(1 + high)))
    loss = make(clip_low=low, clip_high=high, base=base)
    kit.require_reference(loss, batch, kit.by_token(rule(low, high), base))
