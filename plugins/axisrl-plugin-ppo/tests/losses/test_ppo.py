"""ppo/ppo against golden values, an independent float64 reference, and poisoned positions."""

from pathlib import Path

import numpy as np
import pytest
import torch

from axisrl.protocols import LossInputs
from axisrl.types import BuildContext
from axisrl_ppo.config import PpoLossConfig
from axisrl_ppo.losses.ppo import PpoLoss

CONTEXT = BuildContext(run_dir=Path("unused"))


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
    result = PpoLoss(PpoLossConfig(**options), CONTEXT)(inputs)
    gradient = torch.autograd.grad(result.per_token_N.sum(), inputs.logprobs_N)[0]
    return result, gradient


def reference(current, base, advantages, mask, low, high):
    """Value and gradient a token, by cases on the sign of the advantage, in float64."""
    values, gradients = [], []
    for lp, b, a, keep in zip(current, base, advantages, mask, strict=True):
        r = np.exp(min(max(lp - b, -20.0), 20.0))
        flat = r > 1 + high if a > 0 else r < 1 - low
        bound = min(r, 1 + high) if a > 0 else max(r, 1 - low)
        values.append(-a * bound if keep else 0.0)
        gradients.append(-a * r if keep and not flat else 0.0)
    return np.array(values), np.array(gradients)


def test_ratios_one_and_a_half_and_one_half_give_losses_of_minus_1_2_and_0_8():
    result, gradient = run(make_inputs(np.log([1.5, 0.5]), [0.0, 0.0], [1.0, -1.0]))
    assert result.per_token_N.tolist() == pytest.approx([-1.2, 0.8])
    assert result.per_token_N.mean().item() == pytest.approx(-0.2)
    assert result.stats["clip_fraction"].values_N.mean().item() == 1.0
    assert gradient.tolist() == [0.0, 0.0]


def test_a_negative_advantage_is_not_bounded_unless_a_dual_clip_says_so():
    inputs = make_inputs(np.log([5.0]), [0.0], [-1.0])
    assert run(inputs)[0].per_token_N.tolist() == pytest.approx([5.0])
    assert run(inputs, dual_clip=3.0)[0].per_token_N.tolist() == pytest.approx([3.0])


def test_the_first_update_of_a_window_has_ratio_exactly_one_and_ppo_kl_zero():
    logprobs = np.random.default_rng(0).normal(-2, 2, 64)
    result, gradient = run(make_inputs(logprobs, logprobs, np.ones(64), dtype=torch.float32))
    assert result.stats["ratio"].values_N.eq(1).all()
    assert result.stats["ppo_kl"].values_N.eq(0).all()
    assert gradient.tolist() == [-1.0] * 64


def test_a_base_of_rollout_needs_nothing_and_a_base_of_old_says_what_it_needs():
    assert PpoLoss(PpoLossConfig(base="rollout"), CONTEXT).needs == frozenset()
    assert PpoLoss(PpoLossConfig(), CONTEXT).needs == {"old_logprobs"}
    inputs = make_inputs([0.0], [-5.0], [1.0], rollout=[0.1])
    assert run(inputs, base="rollout")[0].per_token_N.item() == pytest.approx(-np.exp(-0.1))


def test_the_declared_aggregation_is_the_configured_one():
    config = PpoLossConfig(aggregation="sequence_mean_token_sum_norm", sequence_norm=512)
    loss = PpoLoss(config, CONTEXT)
    assert (loss.aggregation, loss.sequence_norm) == ("sequence_mean_token_sum_norm", 512)
    assert loss.level == "token"


@pytest.mark.parametrize("seed", range(200))
def test_value_and_gradient_equal_an_independent_reference(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 40))
    current, base = rng.normal(-2, 1.0, (2, size)).astype(np.float32).astype(np.float64)
    advantages = rng.normal(0, 1.0, size).astype(np.float32).astype(np.float64)
    mask = rng.random(size) < 0.7
    low, high = rng.uniform(0, 0.5, 2)
    values, gradients = reference(current, base, advantages, mask, low, high)
    for dtype in (torch.float64, torch.float32):
        inputs = make_inputs(current, base, advantages, mask, dtype=dtype)
        result, gradient = run(inputs, clip_low=low, clip_high=high)
        got = result.per_token_N.detach().numpy()
        np.testing.assert_allclose(got, values, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(gradient.numpy(), gradients, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf"), 1e4, -1e4])
def test_a_masked_position_changes_nothing_whatever_it_holds(poison):
    columns = [-1.0, poison, -1.0]
    result, gradient = run(make_inputs(columns, columns, columns, [True, False, True]))
    clean, clean_gradient = run(
        make_inputs([-1.0] * 3, [-1.0] * 3, [-1.0] * 3, [True, False, True])
    )
    assert torch.equal(result.per_token_N, clean.per_token_N)
    assert torch.equal(gradient, clean_gradient)
    assert (result.per_token_N[1].item(), gradient[1].item()) == (0.0, 0.0)


def test_all_positions_masked_gives_loss_zero_and_gradient_zero():
    nothing = [float("nan")] * 3
    result, gradient = run(make_inputs(nothing, nothing, nothing, [False] * 3))
    assert result.per_token_N.tolist() == gradient.tolist() == [0.0] * 3
