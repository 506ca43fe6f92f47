"""What corrections share: the gap in float64, and the two shapes of a result."""

import math

import pytest
import torch

from axisrl_icepop.parts import dropping, log_gap, weighting

MASK = torch.tensor([True, True, False])


def test_the_gap_is_old_minus_rollout_in_float64(kit):
    old, rollout, mask, _ = kit.make_columns([-1.0, -2.0, 7.0], [-1.5, -1.0, 3.0], [1, 1, 0])
    gap = log_gap(old.float(), rollout.float(), mask)
    assert gap.tolist() == [0.5, -1.0, 0.0]
    assert gap.dtype == torch.float64


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf"), 1e4])
def test_the_gap_is_zero_where_masked_whatever_is_there(poison):
    old, rollout = torch.tensor([-1.0, -1.0, poison]), torch.tensor([-1.0, -2.0, poison])
    assert log_gap(old, rollout, MASK).tolist() == [0.0, 1.0, 0.0]


def test_the_gap_carries_no_gradient():
    old, rollout = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    assert not log_gap(old, rollout, MASK).requires_grad


def test_dropping_never_unmasks_and_leaves_every_weight_at_one():
    result = dropping(torch.tensor([True, False, True]), MASK, torch.float32)
    assert result.mask_N.tolist() == [True, False, False]
    assert torch.equal(result.weights_N, torch.ones(3))
    assert result.stats["kept"].values_N.tolist() == [1.0, 0.0, 0.0]


def test_weighting_caps_and_leaves_masked_tokens_at_one():
    logs = torch.tensor([math.log(0.5), 800.0, 800.0], dtype=torch.float64)
    result = weighting(logs, 2.0, MASK, torch.float32)
    assert result.weights_N.tolist() == [0.5, 2.0, 1.0]
    assert result.weights_N.dtype == torch.float32
    assert torch.equal(result.mask_N, MASK)
    assert result.stats["capped"].values_N.tolist() == [0.0, 1.0, 0.0]
    assert result.stats["weight_max"].reduce == "max"


def test_an_empty_batch_gives_an_empty_result():
    nothing = torch.zeros(0, dtype=torch.bool)
    assert dropping(nothing, nothing, torch.float32).weights_N.shape == (0,)
    assert weighting(torch.zeros(0), 2.0, nothing, torch.float32).weights_N.shape == (0,)
