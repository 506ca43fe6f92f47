"""The KV cache, one slot a request, and the attention of one forward pass over it.

1. A forward pass computes rows. A row is one token: its slot, its position in it. Keys and values
   of all rows are written first, so a row sees the rows of its own prompt in the same pass.
2. Row i < ``decode`` attends to slot i (no gathering). Rows of a longer run of one slot are a
   chunk and attend to that slot, expanded over the rows.
3. Both are one ``scaled_dot_product_attention`` call: the heads that share a key head are its
   queries, ``span`` cached positions its keys, and a mask hides those after the row's own.
4. Each row is computed alone inside that kernel, and masked positions add exact zeros; on which
   spans that holds bit by bit is measured on this machine (:func:`exact_spans`).

It does not know requests (:mod:`axisrl_local.scheduler`).

Shapes: R rows, S slots, K key heads, G query heads a key head, C capacity, D head size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

ATTENTION = "axisrl_slots"
LayerAttention = Callable[[int, Tensor, Tensor, Tensor, float], Tensor]
_GRAIN = 32
_BLOCK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Sizes of a model's attention."""

    layers: int
    query_heads: int
    key_heads: int
    head_size: int


class SlotCache:
    """Keys and values per layer: (S + 1, K, C, D). The last slot is where idle rows write."""

    def __init__(self, geometry: Geometry, slots: int, like: Tensor) -> None:
        self._shape = (slots + 1, geometry.key_heads, geometry.head_size)
        self._device, self._dtype = like.device, like.dtype
        self._freed = 0
        self.capacity = 0
        self.keys: list[Tensor] = [self._zeros(0) for _ in range(geometry.layers)]
        self.values: list[Tensor] = [self._zeros(0) for _ in range(geometry.layers)]

    def ensure(self, length: int, limit: int) -> None:
        """Room for ``length`` positions, growing at least twofold up to ``limit``."""
        if length <= self.capacity:
            return
        capacity = max(length, min(limit, 2 * self.capacity))
        for tensors in (self.keys, self.values):
            for layer, old in enumerate(tensors):
                tensors[layer] = self._zeros(capacity)
                tensors[layer][:, :, : self.capacity] = old
        self.capacity = capacity

    def free(self) -> None:
        """Hold nothing until :meth:`restore`."""
        self._freed = max(self._freed, self.capacity)
        self.capacity = 0
        for tensors in (self.keys, self.values):
            tensors[:] = [self._zeros(0) for _ in tensors]

    def restore(self) -> None:
        """As much room as before :meth:`free`, and nothing in it."""
        self.ensure(self._freed, self._freed)
        self._freed = 0

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` positions of a slot."""
        for tensor in (*self.keys, *self.values):
            tensor[target, :, :length] = tensor[source, :, :length]

    def clear(self, slot: int) -> None:
        """Zero a slot: a NaN left behind a mask would still reach the row."""
        for tensor in (*self.keys, *self.values):
            tensor[slot].zero_()

    def _zeros(self, capacity: int) -> Tensor:
        slots, heads, size = self._shape
        return torch.zeros(slots, heads, capacity, size, device=self._device, dtype=self._dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows of one slot. ``mask`` is (rows, 1, 1, span)."""

    rows: Tensor
    slot: int
    mask: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAttention:
    """The attention of one forward pass; handed through the model as a keyword argument."""

    cache: SlotCache
    slots: Tensor
    """int64[R]"""
    positions: Tensor
    """int64[R]"""
    decode_mask: Tensor | None
    """(decode, 1, 1, span), or None without decoding rows."""
    chunks: Sequence[Chunk]

    def __call__(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> Tensor:
        """Cache ``key`` and ``value`` (R, K, 1, D), attend with ``query`` (R, K * G, 1, D) and
        return (R, 1, K * G, D)."""
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[self.slots, :, self.positions] = key[:, :, 0]
        values[self.slots, :, self.positions] = value[:, :, 0]
        rows, heads, _, size = query.shape
        grouped = query.reshape(rows, keys.shape[1], -1, size)
        decode = 0 if self.decode_mask is None else len(self.decode_mask)
        if decode == rows and not self.chunks:
            attended = _attend(grouped, keys[:rows], values[:rows], self.decode_mask, scale)
            return attended.reshape(rows, 1, heads, size)
        out = torch.zeros_like(grouped)
        if decode:
            out[:decode] = _attend(
                grouped[:decode], keys[:decode], values[:decode], self.decode_mask, scale
            )
        for chunk in self.chunks:
            own = (len(chunk.rows), -1, -1, -1)
            out[chunk.rows] = _attend(
                grouped[chunk.rows],
                keys[chunk.slot].expand(own),
                values[chunk.slot].expand(own),
                chunk.mask,
                scale,
            )
        return out.reshape(rows, 1, heads, size)


def slot_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer; ``options["step"]`` is the :class:`StepAttention`, or
    a function that is called like one."""
    step: LayerAttention = options["step"]
    return step(module.layer_idx, query, key, value, options["scaling"]), None


def length_mask(lengths: Tensor, span: int, dtype: torch.dtype) -> Tensor:
    """(n, 1, 1, span): 0 for the first ``lengths[i]`` positions of row i, -inf after them."""
    hidden = torch.arange(span, device=lengths.device) >= lengths[:, None]
    mask = torch.zeros(hidden.shape, dtype=dtype, device=lengths.device)
    return mask.masked_fill_(hidden, float("-inf"))[:, None, None]


def all_spans(limit: int) -> list[int]:
    """Candidate spans up to the first that holds ``limit``: multiples of 32, above 512 of 512."""
    spans = [span for span in range(_GRAIN, _BLOCK, _GRAIN) if span < limit + _GRAIN]
    if limit > _BLOCK - _GRAIN:
        spans += list(range(_BLOCK, limit + _BLOCK, _BLOCK))
    return spans


def exact_spans(geometry: Geometry, limit: int, like: Tensor) -> list[int]:
    """The spans whose result equals the largest span's, bit by bit, one row or several.

    A matrix kernel may order its sums by the number of keys; spans on which it does are left out.
    Empty when not even the largest gives a row the same bits alone and among others.
    """
    spans = all_spans(limit)
    generator = torch.Generator(device=like.device).manual_seed(0)
    groups = geometry.query_heads // geometry.key_heads

    def draw(*middle: int) -> Tensor:
        shape = (4, geometry.key_heads, *middle, geometry.head_size)
        return torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype)

    query, keys, values = draw(groups), draw(spans[-1]), draw(spans[-1])

    def run(rows: slice, span: int, lengths: Tensor) -> Tensor:
        mask = length_mask(lengths[rows], span, like.dtype)
        return _attend(query[rows], keys[rows], values[rows], mask, geometry.head_size**-0.5)

    exact = []
    for span in spans:
        lengths = torch.tensor([1, span // 2, span - 3, span], device=like.device)
        alone = [run(slice(row, row + 1), spans[-1], lengths) for row in range(4)]
        if torch.equal(run(slice(0, 4), span, lengths), torch.cat(alone)):
            exact.append(span)
    return exact


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Any, scale: float) -> Tensor:
    span = mask.shape[-1]
    return scaled_dot_product_attention(
        query, keys[:, :, :span], values[:, :, :span], attn_mask=mask, scale=scale
    )
