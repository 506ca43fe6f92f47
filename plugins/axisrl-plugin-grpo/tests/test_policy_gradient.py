"""The weighted policy gradient: constant weights, stopped tokens, masked positions."""

import pytest
import torch

from axisrl_grpo.policy_gradient import policy_gradient


@pytest.fixture
def batch(kit):
    return kit.tokens([0.0, 0.5, -0.5], [1.0, -2.0, 3.0]).inputs(torch.float64, frozenset())


def slopes(loss_N, batch):
    return torch.autograd.grad(loss_N.sum(), batch.logprobs_N)[0].tolist()


def test_without_weights_it_is_minus_advantage_times_logprob(batch):
    loss_N = policy_gradient(batch)
    assert loss_N.tolist() == [1.0, -1.0, 4.5]
    assert slopes(loss_N, batch) == [-1.0, 2.0, -3.0]


def test_a_weight_scales_value_and_gradient_and_is_held_constant(batch):
    weights_N = batch.logprobs_N.exp()
    loss_N = policy_gradient(batch, weights_N)
    fixed = weights_N.detach()
    assert slopes(loss_N, batch) == pytest.approx((-batch.advantages_N * fixed).tolist())


def test_a_stopped_token_keeps_its_value_and_loses_its_gradient(batch):
    stopped_N = torch.tensor([False, True, False])
    loss_N = policy_gradient(batch, stopped_N=stopped_N)
    assert loss_N.tolist() == policy_gradient(batch).tolist()
    assert slopes(loss_N, batch) == [-1.0, 0.0, -3.0]
