"""The masked operations: nothing at a masked position reaches a value or a gradient."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from axisrl.ops.masked import masked_mean, zero_masked

POISON = [float("nan"), float("inf"), float("-inf"), 1e4, -1e4]


def test_zero_masked_keeps_the_trained_values_and_zeroes_the_rest():
    kept = zero_masked(torch.tensor([1.5, 2.5, 3.5]), torch.tensor([True, False, True]))
    assert kept.tolist() == [1.5, 0.0, 3.5]


@pytest.mark.parametrize("poison", POISON)
def test_a_poisoned_masked_position_gets_zero_value_and_zero_gradient(poison):
    """Pitfall 7."""
    values = torch.tensor([1.0, poison], requires_grad=True)
    out = zero_masked(values, torch.tensor([True, False])).exp()
    out.sum().backward()
    assert out[1].item() == 1.0
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([2.7182817, 0.0])


def test_masked_mean_ignores_the_masked_entries():
    mean = masked_mean(torch.tensor([1.0, float("nan"), 3.0]), torch.tensor([True, False, True]))
    assert mean.item() == 2.0


def test_masked_mean_of_nothing_is_zero_with_zero_gradient():
    values = torch.tensor([float("nan"), 2.0], requires_grad=True)
    mean = masked_mean(values, torch.tensor([False, False]))
    mean.backward()
    assert mean.item() == 0.0
    assert values.grad is not None
    assert values.grad.tolist() == [0.0, 0.0]


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.booleans()), min_size=1, max_size=20))
def test_masked_mean_equals_the_mean_of_the_kept_entries(entries):
    values = torch.tensor([value for value, _ in entries], dtype=torch.float64)
    mask = torch.tensor([keep for _, keep in entries])
    kept = [value for value, keep in entries if keep]
    expected = sum(kept) / len(kept) if kept else 0.0
    assert masked_mean(values, mask).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_is_kept(dtype):
    values = torch.ones(2, dtype=dtype)
    mask = torch.tensor([True, False])
    assert zero_masked(values, mask).dtype == masked_mean(values, mask).dtype == dtype
