"""One checksum for a set of weights, the same on every device and in any order of names.

Formula, per tensor: its bytes as 64-bit words w, zero-padded, laid out in rows of 4096; then
``sum_r (r + 1) sum_c w[r, c]`` and ``sum_c (c + 1) sum_r w[r, c]``, modulo 2^64. SHA-256 over
name, shape, dtype and both sums, names sorted. Integer sums have no rounding, so a GPU and a CPU
agree; both positions count, so swapped rows or columns show.

It protects against mistakes and damage, not against an attacker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

_COLUMNS = 4096
_WORD = 8


def weights_checksum(weights: Mapping[str, Tensor]) -> str:
    """Hex digest of named weights, any dtype and device; a tied weight is given once."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name]
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {_sums(tensor)}\n".encode())
    return digest.hexdigest()


def _sums(tensor: Tensor) -> tuple[int, int]:
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if raw.storage_offset() % _WORD:
        raw = raw.clone()
    whole = raw.numel() // (_WORD * _COLUMNS) * (_WORD * _COLUMNS)
    body, tail = raw[:whole], raw[whole:]
    last = tail.new_zeros(_WORD * _COLUMNS)
    last[: tail.numel()] = tail
    words = (body.view(torch.int64).view(-1, _COLUMNS), last.view(torch.int64).view(1, -1))
    by_row = torch.cat([part.sum(dim=1) for part in words])
    by_column = words[0].sum(dim=0) + words[1].sum(dim=0)
    return _weighted(by_row), _weighted(by_column)


def _weighted(sums: Tensor) -> int:
    return int((sums * torch.arange(1, len(sums) + 1, device=sums.device)).sum())
