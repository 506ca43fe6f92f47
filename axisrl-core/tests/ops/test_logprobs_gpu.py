"""The head on a CUDA device: values, gradients and memory at vocabularies of real models."""

import pytest
import torch

from axisrl.config.training import TrainingOptions
from axisrl.ops.head_plan import HeadPlan, head_plan
from axisrl.ops.logprobs import token_logprobs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

M, H = 48, 64
VOCABULARIES = (1000, 49152, 151936)
GENEROUS = 1 << 30


def inputs(vocabulary, dtype, tokens=M):
    generator = torch.Generator("cuda").manual_seed(5)
    hidden, weight = (
        torch.randn(rows, H, generator=generator, device="cuda") for rows in (tokens, vocabulary)
    )
    weight *= 2 * H**-0.5
    labels = torch.randint(vocabulary, (tokens,), generator=generator, device="cuda")
    temperature = torch.ones(tokens, device="cuda")
    return hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), labels, temperature


def plan(kept_bytes=GENEROUS, *, entropy=True):
    return HeadPlan(chunk_tokens=20, kept_bytes=kept_bytes, entropy=entropy)


def pulled(values, leaves):
    """The values and the gradients of a sum in which every token counts differently."""
    weights = torch.arange(1, M + 1, device="cuda") / M
    total = sum((value * weights).sum() for value in values)
    return [*values, *torch.autograd.grad(total, leaves)]


def exact(hidden, weight, labels, temperature):
    """In float64, from the same numbers."""
    leaves = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    logp = (leaves[0] @ leaves[1].T / temperature[:, None]).log_softmax(-1)
    values = logp.gather(1, labels[:, None])[:, 0], -(logp.exp() * logp).sum(-1)
    return pulled(values, leaves)


@pytest.mark.parametrize("kept_bytes", [0, GENEROUS], ids=["recomputed", "kept"])
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_float32_agrees_with_float64(vocabulary, kept_bytes):
    given = inputs(vocabulary, torch.float32)
    got = pulled(token_logprobs(*given, plan(kept_bytes)), given[:2])
    for ours, want in zip(got, exact(*given), strict=True):
        torch.testing.assert_close(ours.double(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_bfloat16_is_as_near_as_its_rounding_allows(vocabulary):
    given = inputs(vocabulary, torch.bfloat16)
    got = pulled(token_logprobs(*given, plan()), given[:2])
    want = exact(*given)
    assert (got[0] - want[0]).abs().max() < 0.05
    for ours, theirs in zip(got[2:], want[2:], strict=True):
        assert (ours - theirs).norm() < 0.01 * theirs.norm()


@pytest.mark.parametrize("entropy", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_is_kept_changes_no_number(dtype, entropy):
    given = inputs(VOCABULARIES[-1], dtype)
    kept, recomputed = (
        pulled(token_logprobs(*given, plan(size, entropy=entropy)), given[:2])
        for size in (GENEROUS, 0)
    )
    torch.testing.assert_close(kept, recomputed, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values_are_bit_identical_with_and_without_gradients(dtype):
    given = inputs(VOCABULARIES[-1], dtype)
    one = token_logprobs(*given, plan())
    with torch.no_grad():
        other = token_logprobs(*given, plan())
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_memory_does_not_grow_with_the_number_of_tokens():
    def peak(tokens):
        given = inputs(VOCABULARIES[-1], torch.bfloat16, tokens)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        values = token_logprobs(*given, HeadPlan(chunk_tokens=64, kept_bytes=0, entropy=True))
        sum(value.sum() for value in values).backward()
        return torch.cuda.max_memory_allocated() - before

    peak(64)
    logits = 64 * VOCABULARIES[-1] * 2
    assert peak(1024) - peak(128) < logits


def test_the_plan_keeps_a_share_of_the_card():
    chosen = head_plan(TrainingOptions(), torch.device("cuda"), entropy=False)
    total = torch.cuda.get_device_properties(0).total_memory
    assert chosen.kept_bytes == pytest.approx(total / 32, rel=0.05)
