"""One checksum over named weights: the same on a CPU and a GPU, in any order of the names.

1. The raw bytes of a tensor are read as 64-bit integers, padded with zeros to rows of ``_WIDTH``.
2. Each row is summed (modulo 2**64) on the tensor's own device, word j times an odd number that
   depends on j: a word that changes changes its row's sum, one that moves all but surely does.
3. Name, shape, dtype and row sums are hashed, tensors in the order of their names.

It detects damage and mix-ups, not forgery. Tied weights count once, under the name the caller
gives (``dict(model.named_parameters())`` has each once).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from axisrl.ops.flat_buckets import ROW_BYTES, Bucket, Entry

_WIDTH = ROW_BYTES // 8
_FACTOR = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio: odd, and spread over all bits."""


class Checksum:
    """:func:`weights_checksum` of tensors that come one after another and need not stay."""

    def __init__(self) -> None:
        self._sums: dict[Entry, Tensor] = {}

    @torch.no_grad()
    def add(self, name: str, tensor: Tensor) -> None:
        """Of any shape, dtype and device."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        self._sums[Entry(name, dtype, tuple(tensor.shape), 0)] = _sums(tensor.detach())

    def hexdigest(self) -> str:
        """32 characters."""
        on_host = _to_host(list(self._sums.values()))
        parts, at = {}, 0
        for entry, sums in self._sums.items():
            size = 8 * len(sums)
            parts[entry] = on_host[at : at + size]
            at += size
        return _digest(parts.items())


def weights_checksum(weights: Mapping[str, Tensor]) -> str:
    """Hex digest (32 characters) over named tensors of any shape, dtype and device."""
    checksum = Checksum()
    for name, tensor in weights.items():
        checksum.add(name, tensor)
    return checksum.hexdigest()


def buckets_checksum(buckets: Iterable[Bucket]) -> str:
    """:func:`weights_checksum` of the tensors in flat buckets, with a few operations a bucket."""
    parts = {}
    for bucket in buckets:
        with torch.no_grad():
            on_host = _to_host([_row_sums(bucket.buffer)])
        for entry in bucket.entries:
            start = 8 * (entry.start // ROW_BYTES)
            parts[entry] = on_host[start : start + 8 * -(-entry.nbytes // ROW_BYTES)]
    return _digest(parts.items())


def _digest(parts: Iterable[tuple[Entry, bytes]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for entry, sums in sorted(parts, key=lambda part: part[0].name):
        digest.update(f"{entry.name}\0{entry.dtype}\0{entry.shape}\0".encode())
        digest.update(sums)
    return digest.hexdigest()


def _sums(tensor: Tensor) -> Tensor:
    """int64[rows] of the tensor's bytes."""
    flat = tensor.contiguous().view(-1)
    if flat.storage_offset() * flat.element_size() % 8:
        flat = flat.clone()
    raw = flat.view(torch.uint8)
    if short := -len(raw) % ROW_BYTES:
        raw = torch.nn.functional.pad(raw, (0, short))
    return _row_sums(raw)


def _row_sums(raw: Tensor) -> Tensor:
    """int64[rows] of whole rows of bytes."""
    table = raw.view(torch.int64).view(-1, _WIDTH)
    return (table * _factors(raw.device)).sum(1)


@functools.cache
def _factors(device: torch.device) -> Tensor:
    """int64[_WIDTH]: distinct odd numbers."""
    odd = torch.arange(1, 2 * _WIDTH, 2, dtype=torch.int64, device=device)
    return odd * (_FACTOR - 2**64)


def _to_host(sums: list[Tensor]) -> bytes:
    """The sums as little-endian bytes, with one transfer where they share a device."""
    if not sums:
        return b""
    if len({part.device for part in sums}) > 1:
        sums = [part.cpu() for part in sums]
    return bytes(torch.cat(sums).cpu().numpy().astype("<i8").tobytes())
