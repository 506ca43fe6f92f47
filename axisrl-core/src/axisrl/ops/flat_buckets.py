"""Named tensors laid end to end in a few byte buffers of a set size, and views back out of them.

1. A bucket takes tensors until the next would not fit; a tensor larger than a bucket gets one of
   its own. Tensors keep their order.
2. Each tensor starts at a multiple of ``ROW_BYTES`` and zeros fill the rest of its last row: any
   type can be viewed there, and a checksum reads a bucket in one go (:mod:`axisrl.ops.checksum`).
3. Buckets are on the tensors' own device; views share their memory.

It sends nothing: :mod:`axisrl.ops.cuda_ipc` describes a bucket to another process, and
:mod:`axisrl.ops.broadcast` sends one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

ROW_BYTES = 65_536


class Entry(NamedTuple):
    """Where a tensor lies in its bucket."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    """In bytes."""

    @property
    def nbytes(self) -> int:
        """Bytes of its values."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype.itemsize * torch.Size(self.shape).numel()


class Bucket(NamedTuple):
    """A buffer and what it holds."""

    buffer: Tensor
    """uint8[rows * ROW_BYTES]."""
    entries: tuple[Entry, ...]


def fill(weights: Mapping[str, Tensor], bucket_bytes: int) -> list[Bucket]:
    """Copy ``weights`` (all on one device) into new buckets of about ``bucket_bytes``."""
    return [filled(weights, entries) for entries in layout(weights, bucket_bytes)]


def layout(weights: Mapping[str, Tensor], bucket_bytes: int) -> list[tuple[Entry, ...]]:
    """What each bucket of :func:`fill` would hold."""
    return [tuple(group) for group in grouped(weights.items(), bucket_bytes)]


def grouped(
    named: Iterable[tuple[str, Tensor]], bucket_bytes: int
) -> Iterator[dict[Entry, Tensor]]:
    """The tensors of each bucket, of tensors that come one after another and need not stay."""
    group: dict[Entry, Tensor] = {}
    start = 0
    for name, tensor in named:
        if group and start + tensor.nbytes > bucket_bytes:
            yield group
            group, start = {}, 0
        dtype = str(tensor.dtype).removeprefix("torch.")
        group[Entry(name, dtype, tuple(tensor.shape), start)] = tensor
        start += _whole_rows(tensor.nbytes)
    if group:
        yield group


def filled(weights: Mapping[str, Tensor], entries: Sequence[Entry]) -> Bucket:
    """A new bucket with a copy of the weights that ``entries`` name."""
    device = weights[entries[0].name].device
    buffer = torch.zeros(buffer_size(entries), dtype=torch.uint8, device=device)
    bucket = Bucket(buffer, tuple(entries))
    for name, target in views(bucket).items():
        target.copy_(weights[name].detach())
    return bucket


def buffer_size(entries: Sequence[Entry]) -> int:
    """Bytes of the buffer that holds them."""
    return _whole_rows(entries[-1].start + entries[-1].nbytes)


def views(bucket: Bucket) -> dict[str, Tensor]:
    """The tensors of a bucket, by name."""
    return {
        entry.name: bucket.buffer[entry.start : entry.start + entry.nbytes]
        .view(getattr(torch, entry.dtype))
        .view(entry.shape)
        for entry in bucket.entries
    }


def entries_from(described: Sequence[Sequence[Any]]) -> tuple[Entry, ...]:
    """Entries that were written as JSON."""
    return tuple(Entry(name, dtype, tuple(shape), start) for name, dtype, shape, start in described)


def _whole_rows(size: int) -> int:
    return -(-size // ROW_BYTES) * ROW_BYTES
