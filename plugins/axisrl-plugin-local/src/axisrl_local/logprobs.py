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
        buffers = _Buffers(weight_VH, min(plan.chunk_tokens, len(labels_M)))
        room = plan.kept_bytes if keep else 0
        kept: list[Tensor] = []
        for chunk in _chunks(len(labels_M), plan.chunk_tokens):
            rows = chunk.stop - chunk.start
            room -= rows * len(weight_VH) * temperature_M.itemsize
            logp_CV = buffers.fresh(rows) if room >= 0 else buffers.first(rows)
            _log_softmax(hidden_MH[chunk], weight_VH, temperature_M[chunk], buffers, out=logp_CV)
            logprobs_M[chunk] = logp_CV.gather(1, labels_M[chunk, None])[:, 0]
            if plan.entropy:
                p_CV = torch.exp(logp_CV, out=buffers.second(rows))
                entropy_M[chunk] = -p_CV.mul_(logp_CV).sum(dim=-1)
            if room >= 0:
                kept.append(logp_CV)
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
        buffers = _Buffers(weight_VH, min(plan.chunk_tokens, len(labels_M)))
        for index, chunk in enumerate(_chunks(len(labels_M), plan.chunk_tokens)):
            if index < len(kept):
                logp_CV = kept[index]
            else:
                logp_CV = buffers.first(chunk.stop - chunk.start)
                hidden_CH, temperature_C = hidden_MH[chunk], temperature_M[chunk]
                _log_softmax(hidden_CH, weight_VH, temperature_C, buffers, out=logp_CV)
            grad_CV = _grad_logits(logp_CV, slopes.rows(chunk), buffers, entropy=plan.entropy)
            grad_CV.scatter_(1, labels_M[chunk, None], slopes.label_M[chunk, None].to(grad_CV))
            torch.mm(grad_CV, weight_VH, out=grad_hidden_MH[chunk])
            if grad_weight_VH is not None:
                _add_product(grad_weight_VH, grad_CV.T, hidden_MH[chunk])
        if grad_weight_VH is not None:
            grad_weight_VH = grad_weight_VH.to(weight_VH.dtype)
        return grad_hidden_MH, grad_weight_VH, None, None, None, None


class _Buffers:
    """Memory of one chunk (C, V), made when it is first asked for and used again by the next."""

    def __init__(self, weight_VH: Tensor, tokens: int) -> None:
        self.dtype = weight_VH.dtype
        self._like = weight_VH
        self._shape = tokens, len(weight_VH)
        self._made: dict[str, Tensor] = {}

    def model(self, rows: int) -> Tensor:
        """In the model's type."""
        return self._buffer("model", self._like.dtype, rows)

    def first(self, rows: int) -> Tensor:
        """In the wide type."""
        return self._buffer("first", _wide(self._like.dtype), rows)

    def second(self, rows: int) -> Tensor:
        """In the wide type."""
        return self._buffer("second", _wide(self._like.dtype), rows)

    def fresh(self, rows: int) -> Tensor:
        """In the wide type, for good."""
        return self._like.new_empty((rows, self._shape[1]), dtype=_wide(self._like.dtype))

    def _buffer(self, name: str, dtype: torch.dtype, rows: int) -> Tensor:
        if name not in self._made:
            self._made[name] = self._like.new_empty(self._shape, dtype=dtype)
        return self._made[name][:rows]


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
    hidden_CH: Tensor, weight_VH: Tensor, temperature_C: Tensor, buffers: _Buffers, *, out: Tensor
) -> None:
    logits_CV = out if out.dtype == buffers.dtype else buffers.model(len(out))
    torch.mm(hidden_CH, weight_VH.T, out=logits_CV)
    torch.div(logits_CV, temperature_C[:, None], out=out)
    # In place: a row is written once its sum is known.
    torch.log_softmax(out, dim=-1, out=out)


def _grad_logits(logp_CV: Tensor, slopes: _Slopes, buffers: _Buffers, *, entropy: bool) -> Tensor:
    """As if no logit were its token's label. Leaves ``logp_CV`` as it is where it is no buffer."""
    rows = len(logp_CV)
    factor_CV = slopes.constant_M[:, None]
    if entropy:
        scaled_CV = torch.mul(logp_CV, slopes.factor_M[:, None], out=buffers.second(rows))
        factor_CV = scaled_CV.add_(factor_CV)
    p_CV = torch.exp(logp_CV, out=buffers.first(rows))
    model_CV = p_CV if p_CV.dtype == buffers.dtype else buffers.model(rows)
    return torch.mul(p_CV, factor_CV, out=model_CV)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right; chunks of a half type are summed in float32."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total.add_(left @ right)
