"""Tests of axisrl.ops.logprobs."""

import math

import pytest
import torch

from axisrl.ops import logprobs as module
from axisrl.ops.head_plan import HeadPlan
from axisrl.ops.logprobs import token_logprobs

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


def kept_bytes_of(inputs, plan):
    logprobs, _ = token_logprobs(*inputs, plan)
    saved = [x for x in logprobs.grad_fn.saved_tensors if x is not None]
    return sum(x.nbytes for x in saved if x.ndim == 2 and x.shape[1] == V)


def test_no_more_logits_are_kept_than_there_is_room_for(inputs):
    chunk = 3 * V * 8
    sizes = [kept_bytes_of(inputs, plan(3, size)) for size in (0, chunk, 2 * chunk + 1)]
    assert sizes == [0, chunk, 2 * chunk]


def test_what_is_kept_has_the_models_type(inputs):
    half = [x.detach().bfloat16().requires_grad_() for x in inputs[:2]]
    assert kept_bytes_of((*half, *inputs[2:]), plan()) == M * V * 2


def test_a_frozen_head_keeps_no_logits(inputs):
    hidden, weight, labels, temperature = inputs
    frozen = hidden, weight.detach(), labels, temperature
    assert kept_bytes_of(frozen, plan(entropy=False)) == 0


@pytest.mark.parametrize("entropy", [True, False])
def test_what_is_kept_changes_no_number(inputs, entropy):
    single = [x.detach().float().requires_grad_() for x in inputs[:2]]
    grads = []
    for kept_bytes in (0, GENEROUS):
        values = token_logprobs(*single, *inputs[2:], plan(kept_bytes=kept_bytes, entropy=entropy))
        grads.append(torch.autograd.grad(sum(x.square().sum() for x in values), single))
    torch.testing.assert_close(*grads, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values_are_bit_identical_with_and_without_gradients(inputs, dtype):
    hidden, weight = (x.detach().to(dtype).requires_grad_() for x in inputs[:2])
    with_gradients = token_logprobs(hidden, weight, *inputs[2:], plan())
    with torch.no_grad():
        without = token_logprobs(hidden, weight, *inputs[2:], plan())
    for one, other in zip(with_gradients, without, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kept_bytes", [0, GENEROUS])
def test_a_chunk_worked_on_in_blocks_gives_the_same(inputs, monkeypatch, kept_bytes):
    def results():
        values = token_logprobs(*inputs, plan(5, kept_bytes))
        total = sum((x * torch.arange(M)).sum() for x in values)
        return *values, *torch.autograd.grad(total, inputs[:2])

    whole = results()
    monkeypatch.setattr(module, "_block_bytes", lambda _device: 2 * V * 8)
    torch.testing.assert_close(results(), whole)


def test_float32_agrees_with_plain_cross_entropy(inputs):
    hidden, weight = (x.detach().float().requires_grad_() for x in inputs[:2])
    labels, ones = inputs[2], torch.ones(M)
    logprobs, _ = token_logprobs(hidden, weight, labels, ones, plan(entropy=False))
    plain = torch.nn.functional.cross_entropy(hidden @ weight.T, labels, reduction="none")
    torch.testing.assert_close(logprobs, -plain, rtol=1e-6, atol=1e-6)
    ours = torch.autograd.grad(logprobs.sum(), (hidden, weight))
    theirs = torch.autograd.grad(-plain.sum(), (hidden, weight))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_token_of_probability_zero_leaves_the_gradient_of_entropy_finite(dtype):
    hidden = torch.ones(1, 1, dtype=dtype, requires_grad=True)
    weight = torch.tensor([[0.0], [-1.0], [-200.0]], dtype=dtype)
    labels, temperature = torch.zeros(1, dtype=torch.int64), torch.ones(1)
    _, entropy = token_logprobs(hidden, weight, labels, temperature, plan())
    entropy.sum().backward()
    p = 1 / (1 + math.exp(-1))
    assert hidden.grad.item() == pytest.approx(-p * (1 - p), rel=0.01)


def test_no_tokens_give_no_logprobs_and_zero_gradients(inputs):
    hidden, weight, labels, temperature = inputs
    logprobs, entropy = token_logprobs(hidden[:0], weight, labels[:0], temperature[:0], plan())
    assert logprobs.shape == entropy.shape == (0,)
    (grad,) = torch.autograd.grad(logprobs.sum(), weight)
    assert not grad.any()


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
