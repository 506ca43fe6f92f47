"""Context parallel: the ranks that divide the tokens of a batch, and what they exchange.

1. The batch is cut into 2 C chunks of equal length, wherever a row is. Rank c has chunks c and
   2 C - 1 - c: a long row's later tokens see more, and so every rank has as much to do.
2. Each layer's attention puts the keys and values of all tokens together; their gradients are
   summed by the rank that has them. Between forward and backward each rank keeps its own alone.
3. What the head found at a rank's own tokens is put together for the loss, which every rank
   computes alike: only a rank's own part of its gradient goes back.

It attends to nothing (:mod:`axisrl_megatron.attention`) and knows no model.

Shapes: ``N`` own tokens, ``S`` tokens of the batch, ``M`` its trained tokens, ``C`` ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed

from axisrl.ops.row_layout import RowLayout


class Segment(NamedTuple):
    """Own queries that follow each other, and the keys that they see."""

    queries: RowLayout
    keys: RowLayout
    """The same rows from their first token on, up to the last query."""
    first_key: int
    """Which token of the batch it is."""

    @property
    def keys_end(self) -> int:
        """Which token of the batch follows the last key."""
        return self.first_key + sum(self.keys.lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPart:
    """The tokens of rank ``index`` of ``size``, of ``tokens`` that 2 ``size`` divides."""

    index: int
    size: int
    tokens: int
    group: Any
    """Torch's process group of the ranks."""
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    """Around a wait for the others."""

    @property
    def length(self) -> int:
        """Tokens of a chunk."""
        return self.tokens // (2 * self.size)

    @property
    def chunks(self) -> tuple[int, int]:
        """Where the two chunks begin."""
        return self.index * self.length, (2 * self.size - 1 - self.index) * self.length

    def own_N(self, device: torch.device) -> Tensor:  # noqa: N802 - carries its shape
        """Which tokens of the batch are here, in the order in which they are."""
        inside = torch.arange(self.length, device=device)
        return torch.cat([inside + start for start in self.chunks])

    def segments(self, rows: RowLayout) -> list[Segment]:
        """Of each chunk, in rows that lie as ``rows`` says."""
        return [self._segment(rows, start) for start in self.chunks]

    def _segment(self, rows: RowLayout, start: int) -> Segment:
        end = start + self.length
        queries, keys, first, begin = [], [], start, 0
        for length in rows.lengths:
            last = min(begin + length, end)
            if last > max(begin, start):
                first = min(first, begin)
                queries.append(last - max(begin, start))
                keys.append(last - begin)
            begin += length
        device = rows.offsets_R.device
        return Segment(
            RowLayout.from_lengths(queries, device), RowLayout.from_lengths(keys, device), first
        )

    def seen(
        self, own_NX: Tensor, see: Callable[[Tensor], Tensor], *, kept: bool = False
    ) -> Tensor:
        """What ``see`` makes of (S, ...), the (N, ...) of all ranks, whose gradient is summed where
        the tokens are.

        Unless ``kept``, what autograd saves of (S, ...) is given up and gathered once more for the
        backward pass, by every rank, whatever its kernels saved.
        """
        if kept or not torch.is_grad_enabled():
            return see(_whole(own_NX, self, None))
        again = _Again(self, own_NX.detach())
        whole_SX = _whole(own_NX, self, again)
        again.memory = whole_SX.untyped_storage().data_ptr()
        with torch.autograd.graph.saved_tensors_hooks(again.pack, again.unpack):
            made = see(whole_SX)
        found: Tensor = _Seen.apply(made, again)  # type: ignore[no-untyped-call]
        return found

    def gathered(self, own_NX: Tensor) -> Tensor:
        """(S, ...), without a gradient."""
        ranks = own_NX.new_empty((self.tokens, *own_NX.shape[1:]))
        with self.waiting():
            distributed.all_gather_into_tensor(ranks, own_NX.contiguous(), group=self.group)
        pairs = ranks.view(self.size, 2, self.length, *own_NX.shape[1:])
        return torch.cat((pairs[:, 0], pairs[:, 1].flip(0))).flatten(0, 1)

    def answers(self, own_XM: Tensor, among_M: Tensor, count: int) -> Tensor:
        """(..., count), of which ``own_XM`` are those at ``among_M`` and other ranks have the rest.

        The gradient is taken at one's own alone: every rank has the same loss.
        """
        found: Tensor = _Answers.apply(own_XM, among_M, count, self)  # type: ignore[no-untyped-call]
        return found


class _View(NamedTuple):
    """Where in its memory a tensor lies."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class _Again:
    """The whole of ``own_NX`` in the backward pass; autograd saves its views alone."""

    def __init__(self, part: ContextPart, own_NX: Tensor) -> None:
        self.part, self.own_NX = part, own_NX
        self.memory = 0
        """Where it is in the forward pass."""
        self.whole_SX: Tensor | None = None

    def pack(self, tensor: Tensor) -> Tensor | _View:
        if tensor.untyped_storage().data_ptr() != self.memory:
            return tensor
        return _View(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))

    def unpack(self, saved: Tensor | _View) -> Tensor:
        if isinstance(saved, Tensor):
            return saved
        if self.whole_SX is None:
            raise RuntimeError("keys and values of a batch are differentiated a second time")
        return self.whole_SX.as_strided(saved.shape, saved.stride, saved.offset)


def _whole(own_NX: Tensor, part: ContextPart, again: _Again | None) -> Tensor:
    found: Tensor = _Whole.apply(own_NX, part, again)  # type: ignore[no-untyped-call]
    return found


class _Whole(torch.autograd.Function):
    """All-gather; backward it is a reduce-scatter, and what was gathered again is given up."""

    @staticmethod
    def forward(ctx: Any, own_NX: Tensor, part: ContextPart, again: _Again | None) -> Tensor:
        ctx.part, ctx.again = part, again
        return part.gathered(own_NX)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        part: ContextPart = ctx.part
        if ctx.again is not None:
            ctx.again.whole_SX = None
        (grad_SX,) = grads
        chunks = grad_SX.reshape(2 * part.size, part.length, *grad_SX.shape[1:])
        pairs = torch.stack((chunks[: part.size], chunks[part.size :].flip(0)), dim=1)
        own_NX = grad_SX.new_empty((2 * part.length, *grad_SX.shape[1:]))
        with part.waiting():
            distributed.reduce_scatter_tensor(own_NX, pairs.flatten(0, 2), group=part.group)
        return own_NX, None, None


class _Seen(torch.autograd.Function):
    """Nothing; before everything else of the backward pass it gathers again."""

    @staticmethod
    def forward(ctx: Any, made: Tensor, again: _Again) -> Tensor:
        ctx.again = again
        return made.view_as(made)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        again: _Again = ctx.again
        again.whole_SX = again.part.gathered(again.own_NX)
        return grads[0], None


class _Answers(torch.autograd.Function):
    """Each number is one rank's; added to the zeros of the others it stays what it is."""

    @staticmethod
    def forward(ctx: Any, own_XM: Tensor, among_M: Tensor, count: int, part: ContextPart) -> Tensor:
        ctx.save_for_backward(among_M)
        whole_XM = own_XM.new_zeros((*own_XM.shape[:-1], count))
        whole_XM.index_copy_(-1, among_M, own_XM)
        with part.waiting():
            distributed.all_reduce(whole_XM, group=part.group)
        return whole_XM

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (among_M,) = ctx.saved_tensors
        return grads[0].index_select(-1, among_M), None, None, None
