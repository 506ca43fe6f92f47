"""The log-ratio: bounded, blind to masked positions, and measured from the base that was asked."""

import pytest
import torch

from axisrl.ops.ratio import LOG_RATIO_BOUND, base_logprobs, log_ratio
from axisrl.protocols import LossInputs


def ratio_and_gradient(current, base, mask):
    logprobs = torch.tensor(current, requires_grad=True)
    d = log_ratio(logprobs, torch.tensor(base), torch.tensor(mask, dtype=torch.bool))
    d.sum().backward()
    assert logprobs.grad is not None
    return d.tolist(), logprobs.grad.tolist()


def test_equal_logprobs_give_a_log_ratio_of_exactly_zero_with_gradient_one():
    assert ratio_and_gradient([-1.7], [-1.7], [True]) == ([0.0], [1.0])


@pytest.mark.parametrize(("current", "bound"), [(1e4, LOG_RATIO_BOUND), (-1e4, -LOG_RATIO_BOUND)])
def test_a_log_ratio_outside_the_bounds_is_clamped_and_gets_no_gradient(current, bound):
    assert ratio_and_gradient([current], [0.0], [True]) == ([bound], [0.0])


def test_a_logprob_of_minus_infinity_stays_finite():
    assert ratio_and_gradient([float("-inf")], [-1.0], [True]) == ([-LOG_RATIO_BOUND], [0.0])


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf"), 1e4, -1e4])
@pytest.mark.parametrize("side", ["current", "base", "both"])
def test_masked_positions_are_zero_whatever_they_hold(poison, side):
    current = poison if side != "base" else -1.0
    base = poison if side != "current" else -1.0
    d, gradient = ratio_and_gradient([-1.0, current], [-1.5, base], [True, False])
    assert d == [0.5, 0.0]
    assert gradient == [1.0, 0.0]


def test_a_nan_at_a_trained_position_is_not_hidden():
    d, _ = ratio_and_gradient([float("nan")], [-1.0], [True])
    assert d[0] != d[0]


def test_an_empty_batch_has_an_empty_log_ratio():
    assert ratio_and_gradient([], [], []) == ([], [])


def batch(old):
    return LossInputs(
        logprobs_N=torch.tensor([-1.0]),
        mask_N=torch.tensor([True]),
        advantages_N=torch.tensor([1.0]),
        rollout_logprobs_N=torch.tensor([-3.0]),
        trajectory_N=torch.tensor([0]),
        old_logprobs_N=None if old is None else torch.tensor([old]),
    )


def test_each_base_is_its_own_column():
    assert base_logprobs(batch(-2.0), "old").item() == -2.0
    assert base_logprobs(batch(-2.0), "rollout").item() == -3.0


def test_a_base_of_rollout_needs_no_old_logprobs():
    assert base_logprobs(batch(None), "rollout").item() == -3.0


def test_a_base_of_old_without_old_logprobs_is_an_error():
    with pytest.raises(ValueError, match="base: old was given a batch without old_logprobs"):
        base_logprobs(batch(None), "old")
