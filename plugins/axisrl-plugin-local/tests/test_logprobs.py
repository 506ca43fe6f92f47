"""Tests of axisrl_local.logprobs."""

import math

import pytest
import torch

from axisrl_local.logprobs import HeadPlan, token_logprobs

M, H, V = 7, 5, 11
GENEROUS = 1 << 20


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(M, H, dtype=torch.float64, generator=generator, requires_grad=True)
    weight = torch.randn(V, H, dtype=torch.float64, generator=generator, requires_grad=True)
    labels = torch.randint(V, (M,), generator=generator)
    temperature = 0.5 + torch.rand(M, dtype=torch.float64, generator=generator)
    return hidden, weight, labels, temperature


def plan(chunk_tokens=3, kept_bytes=GENEROUS, *, entropy=True):
    return HeadPlan(chunk_tokens=chunk_tokens, kept_bytes=kept_bytes, entropy=entropy)


def reference(hidden, weight, labels, temperature):
    logp = (hidden @ weight.T / temperature[:, None]).log_softmax(-1)
    return logp.gather(1, labels[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def test_values_are_those_of_the_whole_logits(inputs):
    got, want = token_logprobs(*inputs, plan()), reference(*inputs)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("kept_bytes", [0, 3 * V * 8, GENEROUS], ids=["none", "one", "all"])
@pytest.mark.parametrize("chunk_tokens", [1, 3, 100])
def test_gradients_are_those_of_the_whole_logits(inputs, chunk_tokens, kept_bytes):
    grads = []
    for logprobs, entropy in (
        token_logprobs(*inputs, plan(chunk_tokens, kept_bytes)),
        reference(*inputs),
    ):
        total = (logprobs * torch.arange(M)).sum() + (entropy * torch.arange(M).flip(0)).sum()
        grads.append(torch.autograd.grad(total, inputs[:2]))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("entropy", [True, False])
def test_gradients_agree_with_finite_differences(inputs, entropy):
    hidden, weight, labels, temperature = inputs

    def head(hidden, weight):
        logprobs, entropies = token_logprobs(
            hidden, weight, labels, temperature, plan(entropy=entropy)
        )
        return (logprobs, entropies) if entropy else logprobs

    assert torch.autograd.gradcheck(head, (hidden, weight))


def test_entropy_costs_nothing_and_is_zero_unless_asked_for(inputs):
    _, entropy = token_logprobs(*inputs, plan(entropy=False))
    assert not entropy.any()


def test_a_half_type_gives_float32_logprobs_and_half_gradients(inputs):
    hidden, weight, labels, temperature = inputs
    half = [x.detach().bfloat16().requires_grad_() for x in (hidden, weight)]
    logprobs, entropy = token_logprobs(*half, labels, temperature.float(), plan())
    assert (logprobs.dtype, entropy.dtype) == (torch.float32, torch.float32)
    logprobs.sum().backward()
    want = torch.autograd.grad(reference(*inputs)[0].sum(), inputs[:2])
    for got, expected in zip(half, want, strict=True):
        assert got.grad.dtype == torch.bfloat16
        torch.testing.assert_close(got.grad.double(), expected, atol=0.1, rtol=0.05)


def test_no_more_logits_are_kept_than_there_is_room_for(inputs):
    def kept(kept_bytes):
        logprobs, _ = token_logprobs(*inputs, plan(3, kept_bytes))
        saved = logprobs.grad_fn.saved_tensors
        return sum(x.nbytes for x in saved if x.ndim == 2 and x.shape[1] == V)

    chunk = 3 * V * 8
    assert [kept(size) for size in (0, chunk, 2 * chunk + 1)] == [0, chunk, 2 * chunk]


def test_nothing_is_kept_without_gradients(inputs):
    with torch.no_grad():
        logprobs, _ = token_logprobs(*inputs, plan())
    assert logprobs.grad_fn is None


@pytest.mark.parametrize("entropy", [True, False])
def test_a_frozen_head_gets_no_gradient_and_hidden_states_get_the_same(inputs, entropy):
    hidden, weight, labels, temperature = inputs

    def grad_of_hidden(weight):
        values = token_logprobs(hidden, weight, labels, temperature, plan(entropy=entropy))
        (grad,) = torch.autograd.grad(sum(value.square().sum() for value in values), hidden)
        return grad

    torch.testing.assert_close(grad_of_hidden(weight.detach()), grad_of_hidden(weight))


@pytest.mark.parametrize("kept_bytes", [0, GENEROUS])
def test_a_second_backward_pass_gives_the_same(inputs, kept_bytes):
    logprobs, entropy = token_logprobs(*inputs, plan(kept_bytes=kept_bytes))
    total = (logprobs + entropy).sum()
    once, again = (torch.autograd.grad(total, inputs[:2], retain_graph=True) for _ in range(2))
    torch.testing.assert_close(once, again, rtol=0, atol=0)


def test_the_gradient_of_a_nearly_certain_label_is_not_rounded_away_in_a_half_type():
    """1 - p at the label is 0.005 here; half numbers near 1 are 0.004 apart."""
    hidden = torch.tensor([[1.0, 0.0]], dtype=torch.bfloat16, requires_grad=True)
    weight = torch.tensor([[6.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.bfloat16)
    labels, temperature = torch.zeros(1, dtype=torch.int64), torch.ones(1)
    logprobs, _ = token_logprobs(hidden, weight, labels, temperature, plan(entropy=False))
    logprobs.sum().backward()
    assert hidden.grad[0, 0].item() == pytest.approx(6 * 2 / (math.exp(6) + 2), rel=0.01)
