"""grpo/grpo against golden values, an independent float64 reference, and poisoned positions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from axisrl_grpo.config import GrpoLossConfig
from axisrl_grpo.losses.grpo import GrpoLoss


@pytest.fixture(scope="module")
def make(kit):
    return lambda **options: GrpoLoss(GrpoLossConfig(**options), kit.context)


def test_ratios_one_and_a_half_and_one_half_are_both_clipped(make, kit, mean_of):
    result, values, gradient = kit.run(make(), kit.tokens(np.log([1.5, 0.5]), [1.0, -1.0]))
    assert values.tolist() == pytest.approx([-1.2, 0.8])
    assert values.mean() == pytest.approx(-0.2)
    assert mean_of(result, "clip_fraction") == 1.0
    assert gradient.tolist() == [0.0, 0.0]


def test_a_clip_on_the_wrong_side_of_the_advantage_does_not_stop_the_gradient(make, kit, mean_of):
    result, values, gradient = kit.run(make(), kit.tokens(np.log([1.5, 0.5]), [-1.0, 1.0]))
    assert values.tolist() == pytest.approx([1.5, -0.5])
    assert gradient.tolist() == pytest.approx([1.5, -0.5])
    assert mean_of(result, "clip_fraction") == 0.0


def test_the_two_sides_of_the_clip_are_set_apart(make, kit):
    batch = kit.tokens(np.log([1.5, 0.5]), [1.0, -1.0])
    values = kit.run(make(clip_low=0.1, clip_high=0.28), batch)[1]
    assert values.tolist() == pytest.approx([-1.28, 0.9])


def test_the_dual_clip_bounds_negative_advantages_only(make, kit, mean_of):
    batch = kit.tokens(np.log([5.0, 5.0]), [-1.0, 1.0])
    result, values, gradient = kit.run(make(dual_clip=3.0), batch)
    assert values.tolist() == pytest.approx([3.0, -1.2])
    assert gradient.tolist() == [0.0, 0.0]
    assert mean_of(result, "dual_clip_fraction") == 0.5
    _, values, gradient = kit.run(make(), batch)
    assert values.tolist() == pytest.approx([5.0, -1.2])
    assert gradient.tolist() == pytest.approx([5.0, 0.0])


def test_the_first_update_of_a_window_has_ratio_exactly_one_and_ppo_kl_zero(make, kit, mean_of):
    batch = kit.tokens(np.zeros(64), np.ones(64), base=-1.7)
    result, _, gradient = kit.run(make(), batch, torch.float32)
    assert result.stats["ratio"].values_N.eq(1).all()
    assert result.stats["ppo_kl"].values_N.eq(0).all()
    assert mean_of(result, "clip_fraction") == 0.0
    assert gradient.tolist() == [-1.0] * 64


def test_ppo_kl_is_the_mean_of_base_minus_current(make, kit, mean_of):
    result = kit.run(make(), kit.tokens([-0.5, -1.0], [1.0, 1.0]))[0]
    assert mean_of(result, "ppo_kl") == pytest.approx(0.75)


def test_mismatch_is_the_absolute_gap_between_trainer_and_engine(make, kit, mean_of):
    batch = kit.tokens([0.0, 0.0], [1.0, 1.0])
    result = kit.run(make(), replace(batch, rollout=batch.old + np.array([0.25, -0.5])))[0]
    assert mean_of(result, "mismatch") == pytest.approx(0.375)
    assert result.stats["mismatch_max"].values_N.max().item() == pytest.approx(0.5)
    assert result.stats["mismatch_max"].reduce == "max"


def test_a_base_of_rollout_needs_nothing_and_measures_from_the_rollout(make, kit):
    loss = make(base="rollout")
    assert loss.needs == frozenset()
    batch = kit.tokens([-0.1], [1.0])
    result, values, _ = kit.run(loss, replace(batch, old=batch.old + 1))
    assert values.item() == pytest.approx(-np.exp(-0.1))
    assert "mismatch" not in result.stats


def test_a_base_of_old_needs_old_logprobs_and_says_so_when_they_are_missing(make, kit):
    assert make().needs == {"old_logprobs"}
    without = kit.tokens([0.0], [1.0]).inputs(torch.float64, frozenset())
    with pytest.raises(ValueError, match="without old_logprobs"):
        make()(without)


def test_the_declared_aggregation_is_the_configured_one(make):
    loss = make(aggregation="sequence_mean_token_sum_norm", sequence_norm=512)
    assert (loss.aggregation, loss.sequence_norm) == ("sequence_mean_token_sum_norm", 512)


@pytest.mark.parametrize("base", ["old", "rollout"])
def test_masked_positions_change_nothing_whatever_they_hold(make, kit, base):
    kit.require_masked_nothing(make(base=base, dual_clip=3.0))


@pytest.mark.parametrize("log_ratio", [1e4, -1e4])
def test_a_huge_log_ratio_at_a_trained_position_stays_finite(make, kit, log_ratio):
    _, values, gradient = kit.run(make(), kit.tokens([log_ratio], [-1.0]), torch.float32)
    assert np.isfinite(values).all()
    assert gradient.tolist() == [0.0]


def test_all_positions_masked_gives_loss_zero_and_gradient_zero(make, kit):
    kit.require_all_masked_is_zero(make(dual_clip=3.0))


def test_a_token_one_rounding_beyond_the_other_bound_keeps_its_whole_gradient(make, kit):
    loss = make(clip_high=0.4896436243686455)
    batch = kit.tokens([0.39853692054748535], [-1.4653873443603516], base=0.0)
    gradient = kit.run(loss, batch, torch.float32)[2]
    assert gradient.tolist() == pytest.approx([1.4653873443603516 * 1.4896436355020632])


def rule(low, high, dual):
    def of(lp, ratio, advantage, at):
        if advantage >= 0:
            value, flat = -advantage * min(ratio, 1 + high), at > 1 + high
        else:
            value, flat = -advantage * max(ratio, 1 - low), at < 1 - low
            if dual is not None:
                value, flat = min(value, -dual * advantage), flat or at > dual
        return value, 0.0 if flat else -advantage * ratio

    return of


@pytest.mark.parametrize("seed", range(200))
def test_value_and_gradient_equal_an_independent_reference(make, kit, seed):
    rng = np.random.default_rng(seed)
    low, high = (float(x) for x in rng.uniform(0, 0.9, 2))
    dual = float(rng.uniform(2, 4)) if seed % 3 else None
    base = ("old", "rollout")[seed % 2]
    batch = kit.random_columns(seed, borders=list(np.log([1 - low, 1 + high, dual or 1.0])))
    loss = make(clip_low=low, clip_high=high, dual_clip=dual, base=base)
    kit.require_reference(loss, batch, kit.by_token(rule(low, high, dual), base))


def test_the_gradient_equals_finite_differences(make, kit):
    rng = np.random.default_rng(3)
    fixed = kit.tokens(rng.normal(0, 0.7, 32), rng.normal(0, 1, 32))
    fixed = fixed.inputs(torch.float64, {"old_logprobs"})
    loss = make(dual_clip=3.0)

    def total(logprobs_N):
        return loss(replace(fixed, logprobs_N=logprobs_N)).per_token_N.sum()

    assert torch.autograd.gradcheck(total, (fixed.logprobs_N,))


rows = st.tuples(st.floats(-8, 0), st.floats(-5, 5), st.booleans())


@given(st.lists(rows, min_size=2, max_size=12), st.data())
def test_splitting_or_reordering_a_batch_changes_no_token(make, kit, rows, data):
    order = data.draw(st.permutations(range(len(rows))))
    cut = data.draw(st.integers(1, len(rows) - 1))

    def losses(picked):
        ratios, advantages, mask = zip(*(rows[index] for index in picked), strict=True)
        return kit.run(make(), kit.tokens(ratios, advantages, mask=mask))[1].tolist()

    whole = losses(range(len(rows)))
    parts = losses(order[:cut]) + losses(order[cut:])
    assert parts == pytest.approx([whole[index] for index in order], rel=1e-12)
