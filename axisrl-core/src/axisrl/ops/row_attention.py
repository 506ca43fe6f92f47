"""Attention over packed rows: causal inside a row, nothing between rows.

1. On CUDA in bfloat16: one call of torch's variable-length flash kernel for all rows.
2. Everywhere else: one scaled-dot-product call a row. The rows are cut with ``split``, whose
   backward is one concatenation; slices would each write a gradient as long as the batch.

It does not drop attention weights: a policy under dropout is not the policy that was sampled.

Shapes: ``N`` tokens, ``H`` query heads, ``K`` key-value heads, ``D`` head size, ``R`` rows.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from axisrl.ops.row_layout import RowLayout


def row_attention(
    heads_1HND: tuple[Tensor, Tensor, Tensor],
    rows: RowLayout,
    *,
    scale: float | None = None,
    window: int | None = None,
) -> Tensor:
    """(1, N, H, D) of query (1, H, N, D), key and value (1, K, N, D); ``window`` tokens up to and
    with oneself are seen, ``scale`` is 1 / sqrt(D) unless given."""
    query_1HND = heads_1HND[0]
    half = query_1HND.is_cuda and query_1HND.dtype == torch.bfloat16
    if half and "window_size" in _varlen_options():
        return _varlen(heads_1HND, rows, scale, window)
    return _row_by_row(heads_1HND, rows, scale, window).transpose(1, 2)


def _row_by_row(
    heads_1HND: tuple[Tensor, Tensor, Tensor],
    rows: RowLayout,
    scale: float | None,
    window: int | None,
) -> Tensor:
    grouped = heads_1HND[0].shape[1] != heads_1HND[1].shape[1]
    outputs = []
    pieces = (torch.split(heads, list(rows.lengths), dim=2) for heads in heads_1HND)
    for query, key, value in zip(*pieces, strict=True):
        mask = _window_mask(query.shape[2], window, query.device)
        outputs.append(
            functional.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=mask,
                is_causal=mask is None,
                scale=scale,
                enable_gqa=grouped,
            )
        )
    return torch.cat(outputs, dim=2)


def _window_mask(length: int, window: int | None, device: torch.device) -> Tensor | None:
    """bool (T, T): the ``window`` tokens up to and with oneself; None when plain causal will do."""
    if window is None or length <= window:
        return None
    ones = torch.ones(length, length, dtype=torch.bool, device=device)
    return ones.tril().triu(1 - window)


@cache
def _varlen_options() -> frozenset[str]:
    """Parameters of this torch's variable-length kernel; empty where there is none."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return frozenset()
    return frozenset(inspect.signature(varlen_attn).parameters)


def _varlen(
    heads_1HND: tuple[Tensor, Tensor, Tensor],
    rows: RowLayout,
    scale: float | None,
    window: int | None,
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = (x[0].transpose(0, 1) for x in heads_1HND)
    options: dict[str, Any] = {}
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and "enable_gqa" in _varlen_options():
        options["enable_gqa"] = True
    elif groups > 1:
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    output_NHD: Any = varlen_attn(
        query,
        key,
        value,
        rows.offsets_R,
        rows.offsets_R,
        rows.longest,
        rows.longest,
        scale=scale,
        window_size=(-1 if window is None else window - 1, 0),
        **options,
    )
    output_1NHD: Tensor = output_NHD.unsqueeze(0)
    return output_1NHD
