"""Log-probability of labels and entropy, from hidden states, a chunk of tokens at a time.

Formula, for a token with hidden state h, label y and temperature t::

    x = W h / t        log p = x - logsumexp(x)
    logprob = log p[y]                 d logprob / dx = onehot(y) - p
    entropy = -sum_v p[v] log p[v]     d entropy / dx = -p (log p + entropy)

Memory is ``chunk_tokens`` x vocabulary, whatever the batch. The forward pass computes each logit
once. The backward pass needs log p again: chunks that fit in ``kept_bytes`` are kept from the
forward pass, the others are computed a second time (one more product with W of four).

It does not support a second derivative.

Shapes: ``M`` trained tokens, ``C`` tokens of a chunk, ``H`` hidden size, ``V`` vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
        room = plan.kept_bytes if keep else 0
        kept, logprobs, entropies = [], [], []
        for chunk in _chunks(len(labels_M), plan.chunk_tokens):
            logp_CV = _log_softmax(hidden_MH[chunk], weight_VH, temperature_M[chunk])
            logprobs.append(logp_CV.gather(1, labels_M[chunk, None])[:, 0])
            entropies.append(_entropy(logp_CV) if plan.entropy else logp_CV.new_zeros(len(logp_CV)))
            room -= logp_CV.nbytes
            if room >= 0:
                kept.append(logp_CV)
        entropy_M = torch.cat(entropies)
        ctx.plan = plan
        ctx.save_for_backward(hidden_MH, weight_VH, labels_M, temperature_M, entropy_M, *kept)
        return torch.cat(logprobs), entropy_M

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads_M: Tensor) -> tuple[Tensor | None, ...]:
        hidden_MH, weight_VH, labels_M, temperature_M, entropy_M, *kept = ctx.saved_tensors
        grad_hidden_MH = torch.empty_like(hidden_MH)
        trains_head = ctx.needs_input_grad[1]
        grad_weight_VH = (
            torch.zeros_like(weight_VH, dtype=_wide(weight_VH.dtype)) if trains_head else None
        )
        for index, chunk in enumerate(_chunks(len(labels_M), ctx.plan.chunk_tokens)):
            if index < len(kept):
                logp_CV = kept[index]
            else:
                logp_CV = _log_softmax(hidden_MH[chunk], weight_VH, temperature_M[chunk])
            grad_logp_C, grad_entropy_C = (grad[chunk, None] for grad in grads_M)
            scale_CV: Tensor = -grad_logp_C
            if ctx.plan.entropy:
                scale_CV = scale_CV - grad_entropy_C * (logp_CV + entropy_M[chunk, None])
            grad_CV = (
                logp_CV.exp().mul_(scale_CV).scatter_add_(1, labels_M[chunk, None], grad_logp_C)
            )
            grad_CV = grad_CV.div_(temperature_M[chunk, None]).to(weight_VH.dtype)
            torch.mm(grad_CV, weight_VH, out=grad_hidden_MH[chunk])
            if grad_weight_VH is not None:
                _add_product(grad_weight_VH, grad_CV.T, hidden_MH[chunk])
        if grad_weight_VH is not None:
            grad_weight_VH = grad_weight_VH.to(weight_VH.dtype)
        return grad_hidden_MH, grad_weight_VH, None, None, None, None


def _chunks(tokens: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, tokens)) for start in range(0, tokens, size)]


def _wide(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.float64 else torch.float32


def _log_softmax(hidden_CH: Tensor, weight_VH: Tensor, temperature_C: Tensor) -> Tensor:
    logits_CV = (hidden_CH @ weight_VH.T).to(_wide(weight_VH.dtype))
    return logits_CV.div_(temperature_C[:, None]).log_softmax(dim=-1)


def _entropy(logp_CV: Tensor) -> Tensor:
    return -(logp_CV.exp().mul_(logp_CV)).sum(dim=-1)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right; chunks of a half type are summed in float32."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total.add_(left @ right)
