"""The clipped ratio loss and its statistics: golden values, gradients by hand, the sharp edges."""

import math

import pytest
import torch

from axisrl.ops.clip import (
    ClipRange,
    clipped_ratio_loss,
    mean_stat,
    mismatch_stats,
    ratio_stats,
)
from axisrl.protocols import LossInputs

PPO = ClipRange(0.2, 0.2)
DUAL = ClipRange(0.2, 0.2, 3.0)


def run(ratios, advantages, clip=PPO, dtype=torch.float64):
    d = torch.tensor([math.log(ratio) for ratio in ratios], dtype=dtype, requires_grad=True)
    loss, stats = clipped_ratio_loss(d, torch.tensor(advantages, dtype=dtype), clip)
    (gradient,) = torch.autograd.grad(loss.sum(), d)
    return loss.tolist(), gradient.tolist(), stats


def mean(stats, name):
    return stats[name].values_N.mean().item()


def test_ratios_of_one_and_a_half_and_one_half_lose_minus_a_fifth_on_average():
    loss, gradient, stats = run([1.5, 0.5], [1.0, -1.0])
    assert loss == pytest.approx([-1.2, 0.8])
    assert sum(loss) / 2 == pytest.approx(-0.2)
    assert gradient == [0.0, 0.0]
    assert mean(stats, "clip_fraction") == 1.0


@pytest.mark.parametrize("ratio", [0.5, 0.9, 1.0, 1.1, 1.5, 6.0])
@pytest.mark.parametrize("advantage", [1.5, -1.5])
def test_the_gradient_is_minus_the_advantage_times_the_ratio_unless_clipped(ratio, advantage):
    loss, gradient, stats = run([ratio], [advantage])
    clipped = ratio > 1.2 if advantage > 0 else ratio < 0.8
    bounded = min(max(ratio, 0.8), 1.2) if clipped else ratio
    assert loss == pytest.approx([-advantage * bounded])
    assert gradient == pytest.approx([0.0 if clipped else -advantage * ratio])
    assert mean(stats, "clip_fraction") == clipped


def test_the_two_sides_of_the_range_are_set_apart():
    loss, _, _ = run([1.5, 0.5], [1.0, -1.0], ClipRange(0.1, 0.28))
    assert loss == pytest.approx([-1.28, 0.9])


def test_the_dual_clip_bounds_what_a_negative_advantage_can_lose():
    loss, gradient, stats = run([5.0, 5.0, 2.0], [-2.0, 2.0, -2.0], DUAL)
    assert loss == pytest.approx([6.0, -2.4, 4.0])
    assert gradient == pytest.approx([0.0, 0.0, 4.0])
    assert mean(stats, "dual_clip_fraction") == pytest.approx(1 / 3)


def test_without_a_dual_clip_there_is_no_such_statistic_and_no_bound():
    loss, _, stats = run([5.0], [-2.0])
    assert loss == pytest.approx([10.0])
    assert "dual_clip_fraction" not in stats


def test_an_advantage_of_zero_loses_nothing_and_is_not_called_clipped():
    loss, gradient, stats = run([9.0, 0.1], [0.0, 0.0], DUAL)
    assert [abs(each) for each in loss + gradient] == [0.0] * 4
    assert mean(stats, "clip_fraction") == mean(stats, "dual_clip_fraction") == 0.0


def test_at_a_ratio_of_one_nothing_is_clipped_and_the_kl_is_zero():
    loss, gradient, stats = run([1.0] * 3, [1.0, -2.0, 0.5], DUAL)
    assert loss == gradient == [-1.0, 2.0, -0.5]
    assert stats["ratio"].values_N.tolist() == [1.0] * 3
    assert mean(stats, "ppo_kl") == mean(stats, "clip_fraction") == 0.0


@pytest.mark.parametrize("d", [20.0, -20.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_the_largest_log_ratio_there_is_stays_finite_in_float32(d, advantage):
    logs = torch.tensor([d], requires_grad=True)
    loss, _ = clipped_ratio_loss(logs, torch.tensor([advantage]), DUAL)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert logs.grad is not None
    assert logs.grad.isfinite().all()


def test_gradients_equal_finite_differences():
    generator = torch.Generator().manual_seed(3)
    d = torch.randn(40, generator=generator, dtype=torch.float64).mul(0.5).requires_grad_()
    advantages = torch.randn(40, generator=generator, dtype=torch.float64)
    for clip in (PPO, DUAL, ClipRange(0.1, 0.3)):
        assert torch.autograd.gradcheck(
            lambda x, clip=clip: clipped_ratio_loss(x, advantages, clip)[0], (d,)
        )


def test_an_empty_batch_loses_nothing():
    loss, stats = clipped_ratio_loss(torch.zeros(0), torch.zeros(0), DUAL)
    assert loss.shape == stats["ratio"].values_N.shape == (0,)


def test_ratio_statistics_are_detached_and_the_kl_is_the_base_minus_the_current():
    d = torch.tensor([0.5, -1.0], requires_grad=True)
    stats = ratio_stats(d, torch.tensor([True, False]))
    assert not any(stat.values_N.requires_grad for stat in stats.values())
    assert stats["ppo_kl"].values_N.tolist() == [-0.5, 1.0]
    assert stats["ratio_max"].reduce == "max"
    assert stats["ratio_max"].values_N.max().item() == pytest.approx(math.exp(0.5))
    assert stats["clip_fraction"].values_N.tolist() == [1.0, 0.0]


def batch(old, rollout, mask):
    size = len(rollout)
    return LossInputs(
        logprobs_N=torch.zeros(size),
        mask_N=torch.tensor(mask),
        advantages_N=torch.zeros(size),
        rollout_logprobs_N=torch.tensor(rollout),
        trajectory_N=torch.zeros(size, dtype=torch.int64),
        old_logprobs_N=None if old is None else torch.tensor(old),
    )


def test_mismatch_is_the_absolute_gap_of_trained_tokens():
    stats = mismatch_stats(batch([-1.0, -1.0, -5.0], [-1.25, -0.5, 0.0], [True, True, False]))
    assert stats["mismatch"].values_N.tolist() == [0.25, 0.5, 0.0]
    assert stats["mismatch_max"].values_N.max().item() == 0.5
    assert stats["mismatch_max"].reduce == "max"


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e4])
def test_a_masked_position_is_no_mismatch_whatever_it_holds(poison):
    stats = mismatch_stats(batch([-1.0, poison], [-1.0, poison], [True, False]))
    assert stats["mismatch"].values_N.tolist() == [0.0, 0.0]


def test_without_old_logprobs_nothing_is_said_about_the_mismatch():
    assert mismatch_stats(batch(None, [-1.0], [True])) == {}


def test_a_mean_of_booleans_is_a_share_and_floats_keep_their_dtype():
    assert mean_stat(torch.tensor([True, False])).values_N.tolist() == [1.0, 0.0]
    assert mean_stat(torch.ones(1, dtype=torch.float64)).values_N.dtype == torch.float64
    assert not mean_stat(torch.ones(1, requires_grad=True)).values_N.requires_grad
    assert mean_stat(torch.ones(1)).reduce == "mean"
