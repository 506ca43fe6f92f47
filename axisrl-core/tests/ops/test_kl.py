"""The three KL estimators: values and gradients by hand, unbiased where they claim it."""

import math

import pytest
import torch

from axisrl.ops.kl import kl_estimate

ESTIMATORS = ["k1", "k2", "k3"]
POISON = [float("nan"), float("inf"), float("-inf"), 1e4, -1e4]


def estimate(estimator, current, base, mask=None, dtype=torch.float64):
    logprobs = torch.tensor(current, dtype=dtype, requires_grad=True)
    keep = torch.ones(len(current), dtype=torch.bool) if mask is None else torch.tensor(mask)
    kl = kl_estimate(logprobs, torch.tensor(base, dtype=dtype), keep, estimator)
    gradient = torch.autograd.grad(kl.sum(), logprobs)[0]
    return kl.tolist(), gradient.tolist()


@pytest.mark.parametrize("d", [-1.5, -0.3, 0.0, 0.7, 2.0])
@pytest.mark.parametrize(
    ("estimator", "value", "slope"),
    [
        ("k1", lambda d: d, lambda d: 1.0),
        ("k2", lambda d: d * d / 2, lambda d: d),
        ("k3", lambda d: math.exp(-d) - 1 + d, lambda d: 1 - math.exp(-d)),
    ],
)
def test_value_and_gradient_are_those_of_the_formula(estimator, value, slope, d):
    kl, gradient = estimate(estimator, [d - 1.0], [-1.0])
    assert kl == pytest.approx([value(d)], abs=1e-12)
    assert gradient == pytest.approx([slope(d)], abs=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_equal_policies_have_an_estimate_of_exactly_zero(estimator):
    assert estimate(estimator, [-1.7, -0.2], [-1.7, -0.2])[0] == [0.0, 0.0]


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_k1_and_k3_are_unbiased(estimator):
    policy = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    base = torch.tensor([0.2, 0.3, 0.1, 0.4], dtype=torch.float64)
    kl, _ = estimate(estimator, policy.log().tolist(), base.log().tolist())
    expectation = sum(p * k for p, k in zip(policy.tolist(), kl, strict=True))
    exact = (policy * (policy.log() - base.log())).sum().item()
    assert expectation == pytest.approx(exact)


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_k2_and_k3_are_never_negative(estimator):
    gaps = torch.linspace(-25, 25, 201).tolist()
    kl, _ = estimate(estimator, gaps, [0.0] * 201, dtype=torch.float32)
    assert min(kl) >= 0


def test_k3_of_a_small_gap_is_exact_in_float32():
    kl, _ = estimate("k3", [1e-3, -1e-3], [0.0, 0.0], dtype=torch.float32)
    assert kl == pytest.approx([4.998e-7, 5.002e-7], rel=1e-3)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("gap", [1e4, -1e4])
def test_a_gap_beyond_the_bound_is_finite_and_has_no_gradient(estimator, gap):
    kl, gradient = estimate(estimator, [gap], [0.0], dtype=torch.float32)
    assert all(math.isfinite(each) for each in kl)
    assert gradient == [0.0]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("side", ["current", "base", "both"])
def test_a_masked_position_is_zero_whatever_it_holds(estimator, poison, side):
    current = poison if side != "base" else -1.0
    base = poison if side != "current" else -1.0
    kl, gradient = estimate(estimator, [-1.0, current], [-1.5, base], [True, False])
    alone, slope = estimate(estimator, [-1.0], [-1.5])
    assert kl == [*alone, 0.0]
    assert gradient == [*slope, 0.0]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_empty_batch_has_no_estimates(estimator):
    nothing = torch.zeros(0)
    assert kl_estimate(nothing, nothing, nothing.bool(), estimator).shape == (0,)
