"""Log-probability of labels and entropy, from hidden states, a chunk of tokens at a time.

Formula, for a token with hidden state h, label y and temperature t::

    x = W h / t        log p = x - logsumexp(x)
    logprob = log p[y]                 d logprob / dx = onehot(y) - p
    entropy = -sum_v p[v] log p[v]     d entropy / dx = -p (log p + entropy)

Memory is ``chunk_tokens`` x vocabulary, whatever the batch. The forward pass computes each logit
once. The backward pass needs log p again: chunks that fit in ``kept_bytes`` are kept from the
forward pass, the others are computed a second time (one more product with W of four). Everything
else of that size lies in buffers that each chunk uses again: on a CPU, filling fresh memory costs
as much as the arithmetic.

It does not support a second derivative.

Shapes: ``M`` trained tokens, ``C`` tokens of a chunk, ``H`` hidden size, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadPlan:
    """How the head is computed."""

    chunk_tokens: int
    kept_bytes: int
    entropy: bool
    """False leaves the entropy at 0 and spends nothing on it."""


def token_logprobs(
    hidden_MH: Tensor, weight_VH: Tensor, labels_M: Tensor, temperature_M: Tensor, plan: HeadPlan
) -> tuple[Tensor, Tensor]:
    """Log-probability of each label and entropy at each token, both float32 (M,) (float64 for
    float64 inputs).

    Differentiable in ``hidden_MH`` and ``weight_VH``.
    """
    logprobs_M, entropy_M = _TokenLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden_MH, weight_VH, labels_M, temperature_M, plan, torch.is_grad_enabled()
    )
    return logprobs_M, entropy_M


class _TokenLogprobs(torch.autograd.Function):
    """Chunked head: see the module's docstring."""

    @staticmethod
    def forward(  # noqa: PLR0913 - the shape of autograd.Function
        ctx: Any,
        hidden_MH: Tensor,
        weight_VH: Tensor,
        labels_M: Tensor,
        temperature_M: Tensor,
        plan: HeadPlan,
        keep: bool,
    ) -> tuple[Tensor, Tensor]:
        temperature_M = temperature_M.to(_wide(weight_VH.dtype))
        logprobs_M, entropy_M = (torch.zeros_like(temperature_M) for _ in range(2))
        buffers = _Buffers.of(weight_VH, min(plan.chunk_tokens, len(labels_M)))
        room = plan.kept_bytes if keep else 0
        kept: list[Tensor] = []
        for chunk in _chunks(len(labels_M), plan.chunk_tokens):
            at = buffers.rows(chunk)
            room -= at.logp_CV.nbytes
            if room >= 0:
                at = at._replace(logp_CV=torch.empty_like(at.logp_CV))
                kept.append(at.logp_CV)
            logp_CV = _log_softmax(hidden_MH[chunk], weight_VH, temperature_M[chunk], at)
            logprobs_M[chunk] = logp_CV.gather(1, labels_M[chunk, None])[:, 0]
            if plan.entropy:
                p_CV = torch.exp(logp_CV, out=at.wide_CV)
                entropy_M[chunk] = -p_CV.mul_(logp_CV).sum(dim=-1)
        ctx.plan = plan
        tokens_M = (labels_M, temperature_M, logprobs_M, entropy_M)
        ctx.save_for_backward(hidden_MH, weight_VH, *tokens_M, *kept)
        return logprobs_M, entropy_M

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads_M: Tensor) -> tuple[Tensor | None, ...]:
        hidden_MH, weight_VH, labels_M, temperature_M, *known_M = ctx.saved_tensors[:6]
        kept, plan = ctx.saved_tensors[6:], ctx.plan
        slopes = _Slopes.of(grads_M, known_M, temperature_M)
        grad_hidden_MH = torch.empty_like(hidden_MH)
        grad_weight_VH = None
        if ctx.needs_input_grad[1]:
            grad_weight_VH = torch.zeros_like(weight_VH, dtype=temperature_M.dtype)
        buffers = _Buffers.of(weight_VH, min(plan.chunk_tokens, len(labels_M)))
        for index, chunk in enumerate(_chunks(len(labels_M), plan.chunk_tokens)):
            at = buffers.rows(chunk)
            if index < len(kept):
                logp_CV = kept[index]
            else:
                logp_CV = _log_softmax(hidden_MH[chunk], weight_VH, temperature_M[chunk], at)
            grad_CV = _grad_logits(logp_CV, slopes.rows(chunk), at, entropy=plan.entropy)
            grad_CV.scatter_(1, labels_M[chunk, None], slopes.label_M[chunk, None].to(grad_CV))
            torch.mm(grad_CV, weight_VH, out=grad_hidden_MH[chunk])
            if grad_weight_VH is not None:
                _add_product(grad_weight_VH, grad_CV.T, hidden_MH[chunk])
        if grad_weight_VH is not None:
            grad_weight_VH = grad_weight_VH.to(weight_VH.dtype)
        return grad_hidden_MH, grad_weight_VH, None, None, None, None


class _Buffers(NamedTuple):
    """Memory for one chunk (C, V), which the next one uses again."""

    model_CV: Tensor
    """In the model's type: logits, or their gradient."""
    wide_CV: Tensor
    """The same memory where the model's type is wide."""
    logp_CV: Tensor

    @classmethod
    def of(cls, weight_VH: Tensor, tokens: int) -> _Buffers:
        shape, wide = (tokens, len(weight_VH)), _wide(weight_VH.dtype)
        model_CV = weight_VH.new_empty(shape)
        wide_CV = model_CV if wide == weight_VH.dtype else weight_VH.new_empty(shape, dtype=wide)
        return cls(model_CV, wide_CV, torch.empty_like(wide_CV))

    def rows(self, chunk: slice) -> _Buffers:
        return _Buffers(*(buffer[: chunk.stop - chunk.start] for buffer in self))


class _Slopes(NamedTuple):
    """The gradient at a token's logits: p (factor log p + constant), and ``label`` at its label."""

    factor_M: Tensor
    constant_M: Tensor
    label_M: Tensor

    @classmethod
    def of(
        cls, grads_M: Sequence[Tensor], known_M: Sequence[Tensor], temperature_M: Tensor
    ) -> _Slopes:
        grad_logprob_M, grad_entropy_M = (grad_M / temperature_M for grad_M in grads_M)
        logprob_M, entropy_M = known_M
        # 1 - p by expm1: exact where the label was nearly certain, the common case.
        label_M = -grad_logprob_M * logprob_M.expm1()
        label_M = label_M - grad_entropy_M * logprob_M.exp() * (logprob_M + entropy_M)
        return cls(-grad_entropy_M, -grad_logprob_M - grad_entropy_M * entropy_M, label_M)

    def rows(self, chunk: slice) -> _Slopes:
        return _Slopes(*(column_M[chunk] for column_M in self))


def _chunks(tokens: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, tokens)) for start in range(0, tokens, size)]


def _wide(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.float64 else torch.float32


def _log_softmax(
    hidden_CH: Tensor, weight_VH: Tensor, temperature_C: Tensor, at: _Buffers
) -> Tensor:
    logits_CV = torch.mm(hidden_CH, weight_VH.T, out=at.model_CV)
    torch.div(logits_CV, temperature_C[:, None], out=at.wide_CV)
    return torch.log_softmax(at.wide_CV, dim=-1, out=at.logp_CV)


def _grad_logits(logp_CV: Tensor, slopes: _Slopes, at: _Buffers, *, entropy: bool) -> Tensor:
    """As if no logit were its token's label. ``logp_CV`` may be ``at.logp_CV``, which is lost."""
    factor_CV = slopes.constant_M[:, None]
    p_CV = torch.exp(logp_CV, out=at.wide_CV)
    if entropy:
        scaled_CV = torch.mul(logp_CV, slopes.factor_M[:, None], out=at.logp_CV)
        factor_CV = scaled_CV.add_(factor_CV)
    return torch.mul(p_CV, factor_CV, out=at.model_CV)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right; chunks of a half type are summed in float32."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total.add_(left @ right)
