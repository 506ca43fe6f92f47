"""Sums, means and minima over trajectories: trained tokens only, wherever their rows stand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from axisrl.ops.trajectory import trajectory_mean, trajectory_min, trajectory_sum

POISON = [float("nan"), float("inf"), float("-inf"), 1e4, -1e4]
ALL = [trajectory_sum, trajectory_mean, trajectory_min]
PLAIN = {
    trajectory_sum: sum,
    trajectory_mean: lambda values: sum(values) / len(values),
    trajectory_min: min,
}


def apply(operation, values, mask, trajectory, dtype=torch.float64):
    columns = torch.tensor(values, dtype=dtype), torch.tensor(mask, dtype=torch.bool)
    return operation(*columns, torch.tensor(trajectory, dtype=torch.int64))


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (trajectory_sum, [4.0, 0.0, 4.0, 9.0, 0.0]),
        (trajectory_mean, [2.0, 0.0, 2.0, 9.0, 0.0]),
        (trajectory_min, [1.0, 0.0, 1.0, 9.0, 0.0]),
    ],
)
def test_each_trained_token_gets_what_its_trajectory_gives(operation, expected):
    values, mask = [1.0, 5.0, 3.0, 9.0, -7.0], [True, False, True, True, False]
    assert apply(operation, values, mask, [4, 4, 4, 2, 2]).tolist() == expected


@pytest.mark.parametrize("operation", ALL)
def test_rows_of_a_trajectory_need_not_stand_side_by_side(operation):
    apart = apply(operation, [1.0, 8.0, 3.0, 6.0], [True] * 4, [7, 9, 7, 9])
    beside = apply(operation, [1.0, 3.0, 8.0, 6.0], [True] * 4, [7, 7, 9, 9])
    assert apart[[0, 2, 1, 3]].tolist() == beside.tolist()


@pytest.mark.parametrize("operation", ALL)
def test_the_numbers_of_trajectories_are_names_and_not_positions(operation):
    far = apply(operation, [1.0, 2.0], [True, True], [2**40, -3])
    assert far.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("operation", ALL)
@pytest.mark.parametrize("poison", POISON)
def test_a_masked_position_changes_no_value_and_no_gradient(operation, poison):
    values = torch.tensor([1.0, poison, 3.0], requires_grad=True)
    mask = torch.tensor([True, False, True])
    out = operation(values, mask, torch.zeros(3, dtype=torch.int64))
    out.exp().sum().backward()
    clean = apply(operation, [1.0, 0.0, 3.0], [True, False, True], [0] * 3, torch.float32)
    assert out.tolist() == clean.tolist()
    assert out[1].item() == 0.0
    assert values.grad is not None
    assert values.grad[1].item() == 0.0
    assert values.grad.isfinite().all()


def test_the_gradient_of_a_mean_reaches_every_trained_token_of_the_trajectory():
    values = torch.tensor([1.0, 2.0, 5.0, 7.0], requires_grad=True)
    mask = torch.tensor([True, True, False, True])
    trajectory_mean(values, mask, torch.tensor([0, 0, 0, 1]))[0].backward()
    assert values.grad is not None
    assert values.grad.tolist() == [0.5, 0.5, 0.0, 0.0]


def test_the_gradient_of_a_minimum_reaches_the_lowest_token_alone():
    values = torch.tensor([4.0, 2.0, 3.0], requires_grad=True)
    trajectory_min(values, torch.ones(3, dtype=torch.bool), torch.zeros(3).long())[0].backward()
    assert values.grad is not None
    assert values.grad.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("operation", ALL)
def test_a_trajectory_without_trained_tokens_is_zero(operation):
    assert apply(operation, [5.0, float("nan")], [False, False], [0, 0]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("operation", ALL)
def test_an_empty_batch_is_empty(operation):
    assert apply(operation, [], [], []).tolist() == []


@pytest.mark.parametrize("operation", ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_is_kept(operation, dtype):
    assert apply(operation, [1.0], [True], [0], dtype).dtype == dtype


tokens = st.tuples(st.floats(-1e3, 1e3), st.booleans(), st.integers(0, 3))


@pytest.mark.parametrize("operation", ALL)
@given(rows=st.lists(tokens, min_size=1, max_size=20))
def test_it_equals_plain_python_over_the_kept_values(operation, rows):
    values, mask, trajectory = zip(*rows, strict=True)
    expected = [
        PLAIN[operation]([value for value, keep, other in rows if keep and other == own])
        if kept
        else 0.0
        for _, kept, own in rows
    ]
    got = apply(operation, values, mask, trajectory).tolist()
    assert got == pytest.approx(expected, abs=1e-9)
