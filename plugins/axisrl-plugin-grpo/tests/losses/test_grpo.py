"""grpo/grpo against golden values, an independent float64 reference, and poisoned positions."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from axisrl.protocols import LossInputs
from axisrl.types import BuildContext
from axisrl_grpo.config import GrpoLossConfig
from axisrl_grpo.losses.grpo import GrpoLoss

CONTEXT = BuildContext(run_dir=Path("unused"))
POISON = [float("nan"), float("inf"), float("-inf"), 1e4, -1e4]


def make_inputs(current, base, advantages, mask=None, *, rollout=None, dtype=torch.float64):
    def tensor(values):
        return torch.tensor(np.asarray(values), dtype=dtype)

    size = len(current)
    return LossInputs(
        logprobs_N=tensor(current).requires_grad_(),
        mask_N=torch.tensor([True] * size if mask is None else list(mask)),
        advantages_N=tensor(advantages),
        rollout_logprobs_N=tensor(base if rollout is None else rollout),
        trajectory_N=torch.zeros(size, dtype=torch.int64),
        old_logprobs_N=tensor(base),
    )


def run(inputs, **options):
    result = GrpoLoss(GrpoLossConfig(**options), CONTEXT)(inputs)
    gradient = torch.autograd.grad(result.per_token_N.sum(), inputs.logprobs_N)[0]
    return result, gradient


def stat(result, name, mask=None):
    values = result.stats[name].values_N
    return (values if mask is None else values[mask]).mean().item()


def reference(current, base, advantages, mask, low, high, dual):
    """Value and gradient a token, from the formula's cases, in float64 without torch."""
    values, gradients = [], []
    for lp, b, a, keep in zip(current, base, advantages, mask, strict=True):
        d = min(max(lp - b, -20.0), 20.0)
        r = np.exp(d)
        inside = 1.0 if -20 <= lp - b <= 20 else 0.0
        if a >= 0:
            flat = r > 1 + high
            value = -a * min(r, 1 + high)
        else:
            flat = r < 1 - low
            value = -a * max(r, 1 - low)
            if dual is not None and value > -dual * a:
                flat, value = True, -dual * a
        values.append(value if keep else 0.0)
        gradients.append(-a * r * inside if keep and not flat else 0.0)
    return np.array(values), np.array(gradients)


def test_ratios_one_and_a_half_and_one_half_are_both_clipped():
    inputs = make_inputs(np.log([1.5, 0.5]), [0.0, 0.0], [1.0, -1.0])
    result, gradient = run(inputs)
    assert result.per_token_N.tolist() == pytest.approx([-1.2, 0.8])
    assert result.per_token_N.mean().item() == pytest.approx(-0.2)
    assert stat(result, "clip_fraction") == 1.0
    assert gradient.tolist() == [0.0, 0.0]


def test_a_clip_on_the_wrong_side_of_the_advantage_does_not_stop_the_gradient():
    result, gradient = run(make_inputs(np.log([1.5, 0.5]), [0.0, 0.0], [-1.0, 1.0]))
    assert result.per_token_N.tolist() == pytest.approx([1.5, -0.5])
    assert gradient.tolist() == pytest.approx([1.5, -0.5])
    assert stat(result, "clip_fraction") == 0.0


def test_the_two_sides_of_the_clip_are_set_apart():
    inputs = make_inputs(np.log([1.5, 0.5]), [0.0, 0.0], [1.0, -1.0])
    result, _ = run(inputs, clip_low=0.1, clip_high=0.28)
    assert result.per_token_N.tolist() == pytest.approx([-1.28, 0.9])


def test_the_dual_clip_bounds_negative_advantages_only():
    inputs = make_inputs(np.log([5.0, 5.0]), [0.0, 0.0], [-1.0, 1.0])
    result, gradient = run(inputs, dual_clip=3.0)
    assert result.per_token_N.tolist() == pytest.approx([3.0, -1.2])
    assert gradient.tolist() == [0.0, 0.0]
    assert stat(result, "dual_clip_fraction") == 0.5
    unbounded, gradient = run(inputs)
    assert unbounded.per_token_N.tolist() == pytest.approx([5.0, -1.2])
    assert gradient.tolist() == pytest.approx([5.0, 0.0])


def test_the_first_update_of_a_window_has_ratio_exactly_one_and_ppo_kl_zero():
    logprobs = np.random.default_rng(0).normal(-2, 2, 64)
    result, gradient = run(make_inputs(logprobs, logprobs, np.ones(64), dtype=torch.float32))
    assert result.stats["ratio"].values_N.eq(1).all()
    assert result.stats["ppo_kl"].values_N.eq(0).all()
    assert stat(result, "clip_fraction") == 0.0
    assert gradient.tolist() == [-1.0] * 64


def test_ppo_kl_is_the_mean_of_base_minus_current():
    result, _ = run(make_inputs([-1.0, -2.0], [-0.5, -1.0], [1.0, 1.0]))
    assert stat(result, "ppo_kl") == pytest.approx(0.75)


def test_mismatch_is_the_absolute_gap_between_trainer_and_engine():
    inputs = make_inputs([-1.0, -1.0], [-1.0, -2.0], [1.0, 1.0], rollout=[-1.25, -1.5])
    result, _ = run(inputs)
    assert stat(result, "mismatch") == pytest.approx(0.375)
    assert result.stats["mismatch_max"].values_N.max().item() == pytest.approx(0.5)
    assert result.stats["mismatch_max"].reduce == "max"


def test_a_base_of_rollout_needs_nothing_and_measures_from_the_rollout():
    loss = GrpoLoss(GrpoLossConfig(base="rollout"), CONTEXT)
    assert loss.needs == frozenset()
    inputs = LossInputs(
        logprobs_N=torch.tensor([0.0]),
        mask_N=torch.tensor([True]),
        advantages_N=torch.tensor([1.0]),
        rollout_logprobs_N=torch.tensor([0.1]),
        trajectory_N=torch.tensor([0]),
    )
    result = loss(inputs)
    assert result.per_token_N.item() == pytest.approx(-np.exp(-0.1))
    assert "mismatch" not in result.stats


def test_a_base_of_old_needs_old_logprobs_and_says_so_when_they_are_missing():
    loss = GrpoLoss(GrpoLossConfig(), CONTEXT)
    assert loss.needs == {"old_logprobs"}
    inputs = LossInputs(
        logprobs_N=torch.zeros(1),
        mask_N=torch.ones(1, dtype=torch.bool),
        advantages_N=torch.zeros(1),
        rollout_logprobs_N=torch.zeros(1),
        trajectory_N=torch.zeros(1, dtype=torch.int64),
    )
    with pytest.raises(ValueError, match="without old_logprobs"):
        loss(inputs)


def test_the_declared_aggregation_is_the_configured_one():
    config = GrpoLossConfig(aggregation="sequence_mean_token_sum_norm", sequence_norm=512)
    loss = GrpoLoss(config, CONTEXT)
    assert (loss.aggregation, loss.sequence_norm) == ("sequence_mean_token_sum_norm", 512)


def poisoned(poison, column):
    """Two trained tokens around one masked token that holds ``poison`` in ``column``."""
    columns = {
        name: np.array([-1.0, -1.0, -1.0]) for name in ("current", "base", "advantages", "rollout")
    }
    columns[column][1] = poison
    rollout = columns.pop("rollout")
    return make_inputs(**columns, mask=[True, False, True], rollout=rollout)


@pytest.mark.parametrize("base", ["old", "rollout"])
@pytest.mark.parametrize("column", ["current", "base", "advantages", "rollout"])
@pytest.mark.parametrize("poison", POISON)
def test_a_masked_position_changes_nothing_whatever_it_holds(poison, column, base):
    result, gradient = run(poisoned(poison, column), base=base, dual_clip=3.0)
    clean, clean_gradient = run(poisoned(-1.0, column), base=base, dual_clip=3.0)
    assert torch.equal(result.per_token_N, clean.per_token_N)
    assert torch.equal(gradient, clean_gradient)
    assert (result.per_token_N[1].item(), gradient[1].item()) == (0.0, 0.0)
    for name, entry in result.stats.items():
        assert torch.equal(entry.values_N, clean.stats[name].values_N), name


@pytest.mark.parametrize("log_ratio", [1e4, -1e4])
def test_a_huge_log_ratio_at_a_trained_position_stays_finite(log_ratio):
    result, gradient = run(make_inputs([log_ratio], [0.0], [-1.0]))
    assert torch.isfinite(result.per_token_N).all()
    assert gradient.tolist() == [0.0]


def test_all_positions_masked_gives_loss_zero_and_gradient_zero():
    inputs = make_inputs([float("nan")] * 3, [float("nan")] * 3, [float("nan")] * 3, [False] * 3)
    result, gradient = run(inputs, dual_clip=3.0)
    assert result.per_token_N.tolist() == [0.0] * 3
    assert gradient.tolist() == [0.0] * 3
    assert all(torch.isfinite(entry.values_N).all() for entry in result.stats.values())


@pytest.mark.parametrize("seed", range(200))
def test_value_and_gradient_equal_an_independent_reference(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 40))
    current, base = rng.normal(-2, 1.5, (2, size))
    advantages = rng.normal(0, 1.5, size)
    mask = rng.random(size) < 0.7
    low, high = rng.uniform(0, 0.5, 2)
    dual = float(rng.uniform(1.5, 4)) if seed % 2 else None
    values, gradients = reference(current, base, advantages, mask, low, high, dual)
    inputs = make_inputs(current, base, advantages, mask)
    result, gradient = run(inputs, clip_low=low, clip_high=high, dual_clip=dual)
    np.testing.assert_allclose(result.per_token_N.detach().numpy(), values, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gradient.numpy(), gradients, rtol=1e-6, atol=1e-6)


def test_float32_agrees_with_the_reference_to_float32_precision():
    rng = np.random.default_rng(7)
    current, base, advantages = rng.normal(-1, 0.3, (3, 256)).astype(np.float32)
    mask = [True] * 256
    values, gradients = reference(
        *(column.astype(np.float64) for column in (current, base, advantages)), mask, 0.2, 0.2, 3.0
    )
    inputs = make_inputs(current, base, advantages, dtype=torch.float32)
    result, gradient = run(inputs, dual_clip=3.0)
    np.testing.assert_allclose(result.per_token_N.detach().numpy(), values, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gradient.numpy(), gradients, rtol=1e-6, atol=1e-6)


def test_the_gradient_equals_finite_differences():
    rng = np.random.default_rng(3)
    current, base, advantages = rng.normal(-1, 0.5, (3, 32))
    loss = GrpoLoss(GrpoLossConfig(dual_clip=3.0), CONTEXT)

    def total(logprobs_N):
        fixed = make_inputs(current, base, advantages)
        inputs = LossInputs(
            logprobs_N=logprobs_N,
            mask_N=fixed.mask_N,
            advantages_N=fixed.advantages_N,
            rollout_logprobs_N=fixed.rollout_logprobs_N,
            trajectory_N=fixed.trajectory_N,
            old_logprobs_N=fixed.old_logprobs_N,
        )
        return loss(inputs).per_token_N.sum()

    point = torch.tensor(current, requires_grad=True)
    assert torch.autograd.gradcheck(total, (point,))


tokens = st.tuples(st.floats(-8, 0), st.floats(-8, 0), st.floats(-5, 5), st.booleans())


@given(st.lists(tokens, min_size=2, max_size=12), st.data())
def test_splitting_or_reordering_a_batch_changes_no_token(rows, data):
    order = data.draw(st.permutations(range(len(rows))))
    cut = data.draw(st.integers(1, len(rows) - 1))

    def losses(picked):
        current, base, advantages, mask = zip(*(rows[index] for index in picked), strict=True)
        return run(make_inputs(current, base, advantages, mask))[0].per_token_N.tolist()

    whole = losses(range(len(rows)))
    parts = losses(order[:cut]) + losses(order[cut:])
    assert parts == pytest.approx([whole[index] for index in order], rel=1e-12)
