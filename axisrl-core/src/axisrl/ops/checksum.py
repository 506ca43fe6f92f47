"""One checksum over named weights: the same on a CPU and a GPU, in any order of the names.

1. The raw bytes of a tensor are read as 64-bit integers and laid out in rows of ``_WIDTH``.
2. The sums (modulo 2**64) of every row and of every column are taken on the tensor's own device;
   they do not depend on their order, and a value that moves changes a row or a column.
3. Name, shape, dtype and those sums are hashed, tensors in the order of their names.

It detects damage and mix-ups, not forgery. Tied weights count once, under the name the caller
gives (``dict(model.named_parameters())`` has each once).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

_WIDTH = 1024


def weights_checksum(weights: Mapping[str, Tensor]) -> str:
    """Hex digest (32 characters) over named tensors of any shape, dtype and device."""
    named = sorted(weights.items(), key=lambda pair: pair[0])
    digest = hashlib.blake2b(digest_size=16)
    with torch.no_grad():
        sums = [_sums(tensor.detach()) for _, tensor in named]
        gathered = _to_host(sums)
    at = 0
    for (name, tensor), part in zip(named, sums, strict=True):
        dtype = str(tensor.dtype).removeprefix("torch.")
        digest.update(f"{name}\0{dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(gathered[at : at + 8 * len(part)])
        at += 8 * len(part)
    return digest.hexdigest()


def _sums(tensor: Tensor) -> Tensor:
    """int64[rows + columns + rest] of the tensor's bytes; what fills no row is kept as it is."""
    flat = tensor.contiguous().view(-1)
    if flat.storage_offset() * flat.element_size() % 8:
        flat = flat.clone()
    raw = flat.view(torch.uint8)
    whole = raw.numel() // 8 * 8
    words, rest = raw[:whole].view(torch.int64), raw[whole:]
    full = words.numel() // _WIDTH * _WIDTH
    table = words[:full].view(-1, _WIDTH)
    return torch.cat([table.sum(1), table.sum(0), words[full:], rest.to(torch.int64)])


def _to_host(sums: list[Tensor]) -> bytes:
    """The sums as little-endian bytes, with one transfer where they share a device."""
    if not sums:
        return b""
    if len({part.device for part in sums}) > 1:
        sums = [part.cpu() for part in sums]
    return bytes(torch.cat(sums).cpu().numpy().astype("<i8").tobytes())
