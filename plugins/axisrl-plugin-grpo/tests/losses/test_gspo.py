"""grpo/gspo against the golden ratios, an independent reference, and poisoned positions."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from axisrl_grpo.config import GspoLossConfig
from axisrl_grpo.losses.gspo import GspoLoss

NARROW = {"clip_low": 0.2, "clip_high": 0.2}


@pytest.fixture(scope="module")
def make(kit):
    return lambda **options: GspoLoss(GspoLossConfig(**options), kit.context)


def test_trajectories_of_ratio_one_and_a_half_and_one_half_are_both_clipped(make, kit, mean_of):
    steps = [math.log(1.5) - 0.1, math.log(1.5) + 0.1, math.log(0.5) + 0.3, math.log(0.5) - 0.3]
    batch = kit.tokens(steps, [1.0, 1.0, -1.0, -1.0], trajectory=[4, 4, 2, 2])
    result, values, gradient = kit.run(make(**NARROW), batch)
    assert values.tolist() == pytest.approx([-1.2, -1.2, 0.8, 0.8])
    assert values.mean() == pytest.approx(-0.2)
    assert gradient.tolist() == [0.0] * 4
    assert mean_of(result, "clip_fraction") == 1.0


def test_the_ratio_is_the_geometric_mean_over_the_trained_tokens_of_the_trajectory(make, kit):
    batch = kit.tokens(
        [0.02, 5.0, 0.04, 0.1], np.ones(4), mask=[True, False, True, True], trajectory=[1, 1, 1, 0]
    )
    result, values, gradient = kit.run(make(**NARROW), batch)
    ratios = np.exp([0.03, 0.0, 0.03, 0.1])
    trained = [1, 0, 1, 1]
    assert values.tolist() == pytest.approx(-ratios * trained)
    assert gradient.tolist() == pytest.approx(-ratios * trained)
    assert result.stats["sequence_ratio"].values_N.tolist() == pytest.approx(ratios)
    assert result.stats["sequence_ratio_max"].reduce == "max"
    assert result.stats["ratio"].values_N.tolist() == pytest.approx(np.exp([0.02, 0.0, 0.04, 0.1]))


def test_a_single_wild_token_does_not_clip_itself_but_moves_its_whole_trajectory(make, kit):
    batch = kit.tokens([0.3, 0.0, 0.0], np.ones(3), trajectory=[0, 0, 0])
    gradient = kit.run(make(**NARROW), batch)[2]
    assert gradient.tolist() == pytest.approx([-math.exp(0.1)] * 3)


def test_the_defaults_are_the_paper_s_clip_and_a_sequence_mean(make):
    config = GspoLossConfig()
    assert (config.clip_low, config.clip_high) == (3e-4, 4e-4)
    assert make().aggregation == "sequence_mean_token_mean"
    assert make().level == "trajectory"


def test_the_first_update_of_a_window_has_ratio_exactly_one_and_ppo_kl_zero(make, kit):
    batch = kit.tokens(np.zeros(16), np.ones(16), base=-1.7, trajectory=[0, 1] * 8)
    result, _, gradient = kit.run(make(), batch, torch.float32)
    for name in ("ratio", "sequence_ratio"):
        assert result.stats[name].values_N.eq(1).all()
    assert result.stats["ppo_kl"].values_N.eq(0).all()
    assert gradient.tolist() == [-1.0] * 16


def test_tokens_of_one_trajectory_may_have_advantages_of_their_own(make, kit):
    batch = kit.tokens([0.0, 0.0], [2.0, -1.0], trajectory=[0, 0])
    assert kit.run(make(), batch)[2].tolist() == [-2.0, 1.0]


def test_rows_of_a_trajectory_count_as_one_in_any_order(make, kit):
    batch = kit.tokens([0.1, -0.2, 0.3, 0.05], [1.0, -1.0, 0.5, 2.0], trajectory=[0, 1, 0, 1])
    order = [3, 0, 2, 1]
    names = ("current", "old", "rollout", "advantages", "mask", "trajectory")
    shuffled = replace(batch, **{name: getattr(batch, name)[order] for name in names})
    values = kit.run(make(**NARROW), batch)[1]
    assert kit.run(make(**NARROW), shuffled)[1].tolist() == pytest.approx(values[order])


def test_a_base_of_rollout_needs_nothing(make):
    assert make(base="rollout").needs == frozenset()
    assert make().needs == {"old_logprobs"}


@pytest.mark.parametrize("log_ratio", [1e4, -1e4])
def test_a_huge_log_ratio_at_a_trained_position_stays_finite(make, kit, log_ratio):
    _, values, gradient = kit.run(make(), kit.tokens([log_ratio], [-1.0]), torch.float32)
    assert gradient.tolist() == [0.0]
    assert 0 < values[0] <= math.exp(10) * (1 + 1e-6)


def test_masked_positions_change_nothing_whatever_they_hold(make, kit):
    kit.require_masked_nothing(make(**NARROW))


def test_all_positions_masked_gives_loss_zero_and_gradient_zero(make, kit):
    kit.require_all_masked_is_zero(make())


def formula_of(low, high, base):
    def formula(columns, nudge):
        gaps = {}
        for lp, b, keep, j in zip(
            columns.current, columns.base(base), columns.mask, columns.trajectory, strict=True
        ):
            if keep:
                gaps.setdefault(j, []).append(lp - b)
        values, slopes = [], []
        for advantage, keep, j in zip(
            columns.advantages, columns.mask, columns.trajectory, strict=True
        ):
            value, slope = 0.0, 0.0
            if keep:
                exponent = sum(gaps[j]) / len(gaps[j])
                ratio = math.exp(min(exponent, 10.0))
                value = max(-advantage * ratio, -advantage * min(max(ratio, 1 - low), 1 + high))
                at = ratio * math.exp(nudge)
                free = at <= 1 + high if advantage >= 0 else at >= 1 - low
                slope = -advantage * ratio if free and exponent < 10 else 0.0
            values.append(value)
            slopes.append(slope)
        return values, slopes

    return formula


@pytest.mark.parametrize("seed", range(200))
def test_value_and_gradient_equal_an_independent_reference(make, kit, seed):
    rng = np.random.default_rng(seed)
    wide = seed % 4 < 2
    low, high = (float(x) for x in (rng.uniform(0.05, 0.9, 2) if wide else (3e-4, 4e-4)))
    base = ("old", "rollout")[seed % 2]
    borders = (math.log(1 - low), math.log(1 + high))
    batch = kit.random_columns(seed, borders, scale=1.0 if wide else 3e-4)
    if seed % 3 == 0:
        batch = replace(batch, trajectory=np.arange(len(batch.mask)))
    loss = make(clip_low=low, clip_high=high, base=base)
    kit.require_reference(loss, batch, formula_of(low, high, base))
