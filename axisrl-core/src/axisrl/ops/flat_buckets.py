"""Named tensors laid end to end in a few byte buffers of a set size, and views back out of them.

1. A bucket takes tensors until the next would not fit; a tensor larger than a bucket gets one of
   its own. Tensors keep their order.
2. Each tensor starts at a multiple of ``ROW_BYTES`` and zeros fill the rest of its last row: any
   type can be viewed there, and a checksum reads a bucket in one go (:mod:`axisrl.ops.checksum`).
3. Buckets are on the tensors' own device; views share their memory.

It sends nothing: :mod:`axisrl.ops.cuda_ipc` describes a bucket to another process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    buckets = []
    for group in _groups(weights, bucket_bytes):
        tensor = weights[group[0].name]
        size = _whole_rows(group[-1].start + group[-1].nbytes)
        buffer = torch.zeros(size, dtype=torch.uint8, device=tensor.device)
        bucket = Bucket(buffer, tuple(group))
        for name, target in views(bucket).items():
            target.copy_(weights[name].detach())
        buckets.append(bucket)
    return buckets


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


def _groups(weights: Mapping[str, Tensor], bucket_bytes: int) -> Iterator[list[Entry]]:
    group: list[Entry] = []
    start = 0
    for name, tensor in weights.items():
        if group and start + tensor.nbytes > bucket_bytes:
            yield group
            group, start = [], 0
        dtype = str(tensor.dtype).removeprefix("torch.")
        group.append(Entry(name, dtype, tuple(tensor.shape), start))
        start += _whole_rows(tensor.nbytes)
    if group:
        yield group


def _whole_rows(size: int) -> int:
    return -(-size // ROW_BYTES) * ROW_BYTES
