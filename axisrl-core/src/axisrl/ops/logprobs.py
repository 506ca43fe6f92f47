"""Log-probability of labels and entropy, from hidden states, a chunk of tokens at a time.

Formula, for a token with hidden state h, label y and temperature t::

    x = W (h / t)      log p = x - logsumexp(x)
    logprob = log p[y]                 d logprob / dx = onehot(y) - p
    entropy = -sum_v p[v] log p[v]     d entropy / dx = -p (log p + entropy)

So the backward pass needs q = p - onehot(y) and, per token, a factor that only the loss knows. The
factor goes to the rows of the two products with q: without entropy nothing passes over q again.

Memory is ``chunk_tokens`` x vocabulary, whatever the batch: q takes the place of the logits. Chunks
that fit in ``kept_bytes`` keep q from the forward pass, the others compute it a second time (one
more product with W of four). A head without a gradient of its own keeps none: the forward pass
takes q W, as large as the hidden states, unless the entropy has a gradient too.

Numerics: x and q are in the model's type, rounded once each; q at the label is expm1(logprob),
exact where the label was nearly certain. Softmax, logprob and entropy are computed in float32, and
products of chunks summed in it (float64 for float64). h / t is rounded to the model's type: nothing
is lost at temperature 1. What is kept changes no number.

Ranks may share the vocabulary (:class:`VocabularyShard`): each has some rows of W, and sums over
the vocabulary are of all. The gradient of h is then this rank's part, to be summed by the caller.

It does not support a second derivative.

Shapes: ``M`` trained tokens, ``C`` tokens of a chunk, ``B`` tokens of a block of it (so many are
worked on in float32), ``H`` hidden size, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable

from axisrl.ops.head_plan import HeadPlan

_MIB = 1 << 20


class VocabularyShard(NamedTuple):
    """Which rows of the output layer ``weight_VH`` are."""

    start: int
    most: int
    """Rows of the rank that has most."""
    group: Any
    """The process group of the ranks that have the others."""


def token_logprobs(
    hidden_MH: Tensor,
    weight_VH: Tensor,
    labels_M: Tensor,
    temperature_M: Tensor,
    plan: HeadPlan,
    shard: VocabularyShard | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probability of each label and entropy at each token, both float32 (M,) (float64 for
    float64 inputs).

    Differentiable in ``hidden_MH`` and ``weight_VH``.
    """
    logprobs_M, entropy_M = _TokenLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden_MH, weight_VH, labels_M, temperature_M, (plan, shard), torch.is_grad_enabled()
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
        how: tuple[HeadPlan, VocabularyShard | None],
        keep: bool,
    ) -> tuple[Tensor, Tensor]:
        plan, _ = how
        temperature_M = temperature_M.to(_wide(weight_VH.dtype))
        head = _head(hidden_MH, weight_VH, labels_M, temperature_M, how)
        logprobs_M, entropy_M = (torch.zeros_like(temperature_M) for _ in range(2))
        frozen = keep and not (ctx.needs_input_grad[1] or plan.entropy)
        pull_MH = torch.empty_like(hidden_MH) if frozen else None
        room = plan.kept_bytes if keep and not frozen else 0
        kept: list[Tensor] = []
        for chunk in head.chunks():
            room -= (chunk.stop - chunk.start) * len(weight_VH) * weight_VH.itemsize
            x_CV = head.logits(chunk, fresh=room >= 0)
            for rows, x_BV in head.blocks(chunk, x_CV):
                logp_BV = head.log_softmax(rows, x_BV)
                logprobs_M[rows] = head.at_labels(rows, logp_BV)
                if plan.entropy:
                    p_BV = torch.exp(logp_BV, out=head.scratch("p", len(x_BV)))
                    entropy_M[rows] = -head.total(p_BV.mul_(logp_BV).sum(dim=-1))
            if pull_MH is not None:
                torch.mm(head.residual(chunk, x_CV, logprobs_M), weight_VH, out=pull_MH[chunk])
            elif room >= 0:
                kept.append(head.residual(chunk, x_CV, logprobs_M))
        ctx.how = how
        tokens_M = (labels_M, temperature_M, logprobs_M, entropy_M)
        ctx.save_for_backward(hidden_MH, weight_VH, *tokens_M, head.sums_M, pull_MH, *kept)
        return logprobs_M, entropy_M

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads_M: Tensor) -> tuple[Tensor | None, ...]:
        hidden_MH, weight_VH, labels_M, temperature_M, *known_M = ctx.saved_tensors[:6]
        sums_M, pull_MH, *kept = ctx.saved_tensors[6:]
        plan, _ = ctx.how
        slopes = _Slopes.of(grads_M, known_M, temperature_M, entropy=plan.entropy)
        if pull_MH is not None:
            return _times(pull_MH, slopes.row_M), *(None,) * 6
        head = _head(hidden_MH, weight_VH, labels_M, temperature_M, ctx.how)
        head.sums_M = sums_M
        grad_hidden_MH = torch.empty_like(hidden_MH)
        grad_weight_VH = None
        if ctx.needs_input_grad[1]:
            grad_weight_VH = torch.zeros_like(weight_VH, dtype=temperature_M.dtype)
        for index, chunk in enumerate(head.chunks()):
            if index < len(kept):
                q_CV = kept[index]
            else:
                q_CV = head.residual(chunk, head.logits(chunk, fresh=False), known_M[0])
            if plan.entropy:
                q_CV = head.with_entropy(chunk, q_CV, slopes)
            torch.mm(q_CV, weight_VH, out=grad_hidden_MH[chunk])
            if grad_weight_VH is not None:
                rows_CH = _times(hidden_MH[chunk], slopes.row_M[chunk])
                _add_product(grad_weight_VH, q_CV.T, rows_CH)
        if grad_weight_VH is not None:
            grad_weight_VH = grad_weight_VH.to(weight_VH.dtype)
        return grad_hidden_MH.mul_(slopes.row_M[:, None]), grad_weight_VH, *(None,) * 5


class _Head:
    """The output layer at all tokens, and memory that chunks and blocks use one after another."""

    def __init__(
        self,
        hidden_MH: Tensor,
        weight_VH: Tensor,
        labels_M: Tensor,
        temperature_M: Tensor,
        plan: HeadPlan,
    ) -> None:
        self._hidden_MH, self._weight_VH = hidden_MH, weight_VH
        self._labels_M, self._temperature_M = labels_M, temperature_M
        self._chunk = max(1, min(plan.chunk_tokens, len(labels_M)))
        self._block = self._block_for(len(weight_VH))
        self._made: dict[str, Tensor] = {}
        self.sums_M: Tensor | None = None
        """What the backward pass needs beside the log-probabilities."""

    def _block_for(self, rows: int) -> int:
        """Tokens of a block, where the vocabulary has ``rows``."""
        row_bytes = rows * self._temperature_M.itemsize
        return max(1, min(self._chunk, _block_bytes(self._weight_VH.device) // row_bytes))

    def chunks(self) -> list[slice]:
        return _slices(0, len(self._labels_M), self._chunk)

    def blocks(self, chunk: slice, x_CV: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Which tokens they are, and their rows of ``x_CV``."""
        for rows in _slices(chunk.start, chunk.stop, self._block):
            yield rows, x_CV[rows.start - chunk.start : rows.stop - chunk.start]

    def logits(self, chunk: slice, *, fresh: bool) -> Tensor:
        """x, in memory of its own or in that of the chunk before."""
        cooled_CH = _times(self._hidden_MH[chunk], 1 / self._temperature_M[chunk])
        tokens, dtype = len(cooled_CH), self._weight_VH.dtype
        x_CV = self._own(tokens, dtype) if fresh else self._shared("x", self._chunk, dtype)[:tokens]
        return torch.mm(cooled_CH, self._weight_VH.T, out=x_CV)

    def log_softmax(self, rows: slice, x_BV: Tensor) -> Tensor:
        """In a scratch that the next block overwrites."""
        logp_BV = self.scratch("log p", len(x_BV)).copy_(x_BV)
        # In place: a row is written once its sum is known.
        return torch.log_softmax(logp_BV, dim=-1, out=logp_BV)

    def at_labels(self, rows: slice, logp_BV: Tensor) -> Tensor:
        """The labels' entries."""
        return logp_BV.gather(1, self._labels_M[rows, None])[:, 0]

    def total(self, sum_B: Tensor) -> Tensor:
        """A sum over this W, of all of the vocabulary."""
        return sum_B

    def residual(self, chunk: slice, x_CV: Tensor, logprobs_M: Tensor) -> Tensor:
        """q in the place of x."""
        torch.softmax(x_CV, dim=-1, out=x_CV)
        return self.put_at_labels(chunk, x_CV, logprobs_M[chunk].expm1())

    def put_at_labels(self, chunk: slice, q_CV: Tensor, label_C: Tensor) -> Tensor:
        """``label_C`` at the labels' entries of ``q_CV``, in place."""
        values = label_C.to(q_CV.dtype)[:, None]
        return q_CV.scatter_(1, self._labels_M[chunk, None], values)

    def with_entropy(self, chunk: slice, q_CV: Tensor, slopes: _Slopes) -> Tensor:
        """The gradient at x: p (factor log p + constant), but at the label. Kept q stays."""
        grad_CV = self._shared("x", self._chunk, q_CV.dtype)[: len(q_CV)]
        # Where p is 0 its logarithm must be finite.
        tiny = torch.finfo(q_CV.dtype).smallest_normal
        for rows, q_BV in self.blocks(chunk, q_CV):
            logp_BV = torch.add(q_BV, tiny, out=self.scratch("log p", len(q_BV))).log_()
            factor_B, constant_B = (column_M[rows, None] for column_M in slopes[:2])
            torch.addcmul(constant_B, logp_BV, factor_B, out=logp_BV)
            start = rows.start - chunk.start
            torch.mul(q_BV, logp_BV, out=grad_CV[start : start + len(q_BV)])
        return self.put_at_labels(chunk, grad_CV, slopes.label_M[chunk])

    def scratch(self, name: str, tokens: int) -> Tensor:
        """(B, V) in the wide type."""
        return self._shared(name, self._block, self._temperature_M.dtype)[:tokens]

    def _own(self, tokens: int, dtype: torch.dtype) -> Tensor:
        return self._weight_VH.new_empty((tokens, len(self._weight_VH)), dtype=dtype)

    def _shared(self, name: str, tokens: int, dtype: torch.dtype) -> Tensor:
        if name not in self._made:
            self._made[name] = self._own(tokens, dtype)
        return self._made[name]


class _SharedHead(_Head):
    """Some rows of the output layer; ``sums_M`` is logsumexp over all of them."""

    def __init__(self, shard: VocabularyShard, *inputs: Any) -> None:
        super().__init__(*inputs)
        self._group = shard.group
        # All must sum the same blocks, whose rows of W differ in number.
        self._block = self._block_for(shard.most)
        own_M = self._labels_M - shard.start
        self._mine_M = (own_M >= 0) & (own_M < len(self._weight_VH))
        self._labels_M = own_M.clamp(0, len(self._weight_VH) - 1)
        self.sums_M = torch.zeros_like(self._temperature_M)

    def log_softmax(self, rows: slice, x_BV: Tensor) -> Tensor:
        logp_BV = self.scratch("log p", len(x_BV)).copy_(x_BV)
        largest_B = logp_BV.amax(dim=-1)
        distributed.all_reduce(largest_B, distributed.ReduceOp.MAX, group=self._group)
        p_BV = torch.sub(logp_BV, largest_B[:, None], out=self.scratch("p", len(x_BV)))
        sums_B = largest_B + self.total(p_BV.exp_().sum(dim=-1)).log_()
        self._sums_of(rows).copy_(sums_B)
        return logp_BV.sub_(sums_B[:, None])

    def at_labels(self, rows: slice, logp_BV: Tensor) -> Tensor:
        found_B = super().at_labels(rows, logp_BV)
        return self.total(torch.where(self._mine_M[rows], found_B, 0.0))

    def total(self, sum_B: Tensor) -> Tensor:
        distributed.all_reduce(sum_B, group=self._group)
        return sum_B

    def residual(self, chunk: slice, x_CV: Tensor, logprobs_M: Tensor) -> Tensor:
        for rows, x_BV in self.blocks(chunk, x_CV):
            p_BV = self.scratch("p", len(x_BV)).copy_(x_BV)
            x_BV.copy_(p_BV.sub_(self._sums_of(rows)[:, None]).exp_())
        return self.put_at_labels(chunk, x_CV, logprobs_M[chunk].expm1())

    def put_at_labels(self, chunk: slice, q_CV: Tensor, label_C: Tensor) -> Tensor:
        """Where a label is another rank's, what is there stays."""
        there_C = super().at_labels(chunk, q_CV)
        values_C = torch.where(self._mine_M[chunk], label_C.to(q_CV.dtype), there_C)
        return super().put_at_labels(chunk, q_CV, values_C)

    def _sums_of(self, rows: slice) -> Tensor:
        sums_M: Tensor = self.sums_M  # type: ignore[assignment]
        return sums_M[rows]


def _head(
    hidden_MH: Tensor,
    weight_VH: Tensor,
    labels_M: Tensor,
    temperature_M: Tensor,
    how: tuple[HeadPlan, VocabularyShard | None],
) -> _Head:
    plan, shard = how
    inputs = (hidden_MH, weight_VH, labels_M, temperature_M, plan)
    return _Head(*inputs) if shard is None else _SharedHead(shard, *inputs)


class _Slopes(NamedTuple):
    """The gradient at a token's logits: ``row`` q without entropy; with it p (factor log p +
    constant), and ``label`` at its label, ``row`` then being 1."""

    factor_M: Tensor
    constant_M: Tensor
    label_M: Tensor
    row_M: Tensor

    @classmethod
    def of(
        cls,
        grads_M: Sequence[Tensor],
        known_M: Sequence[Tensor],
        temperature_M: Tensor,
        entropy: bool,
    ) -> _Slopes:
        logprob_M, entropy_M = known_M
        to_logprob_M, to_entropy_M = (grad_M / temperature_M for grad_M in grads_M)
        label_M = -to_logprob_M * logprob_M.expm1()
        label_M = label_M - to_entropy_M * logprob_M.exp() * (logprob_M + entropy_M)
        constant_M = -to_logprob_M - to_entropy_M * entropy_M
        row_M = torch.ones_like(logprob_M) if entropy else -to_logprob_M
        return cls(-to_entropy_M, constant_M, label_M, row_M)


def _slices(start: int, stop: int, size: int) -> list[slice]:
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]


def _wide(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.float64 else torch.float32


def _block_bytes(device: torch.device) -> int:
    """A core's cache on a CPU; elsewhere so much that launching a kernel costs little beside."""
    return 256 * _MIB if device.type == "cuda" else 2 * _MIB * torch.get_num_threads()


def _times(rows_MH: Tensor, factor_M: Tensor) -> Tensor:
    return (rows_MH * factor_M[:, None]).to(rows_MH.dtype)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right; chunks of a half type are summed in float32."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total.add_(left @ right)
