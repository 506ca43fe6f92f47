"""Attention over packed rows: causal inside a row, nothing between rows.

1. On CUDA in bfloat16: one call of torch's variable-length flash kernel for all rows.
2. Everywhere else: one scaled-dot-product call a row. The rows are cut with ``split``, whose
   backward is one concatenation; slices would each write a gradient as long as the batch.

Queries may be the last tokens of their rows alone (the end of a row that others begin): row r's
last query is then as late as its last key, as both kernels take it.

It does not drop attention weights: a policy under dropout is not the policy that was sampled.

Shapes: ``N`` queries, ``S`` keys (N unless ``keys`` is given), ``H`` query heads, ``K`` key-value
heads, ``D`` head size, ``R`` rows.
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
    heads: tuple[Tensor, Tensor, Tensor],
    rows: RowLayout,
    *,
    keys: RowLayout | None = None,
    scale: float | None = None,
    window: int | None = None,
) -> Tensor:
    """(1, N, H, D) of query (1, H, N, D), key and value (1, K, S, D) in rows that lie as ``rows``
    and ``keys`` say; ``window`` tokens up to and with oneself are seen, ``scale`` is 1 / sqrt(D)
    unless given."""
    query_1HND = heads[0]
    layouts = rows, rows if keys is None else keys
    half = query_1HND.is_cuda and query_1HND.dtype == torch.bfloat16
    if half and "window_size" in _varlen_options():
        return _varlen(heads, layouts, scale, window)
    return _row_by_row(heads, layouts, scale, window).transpose(1, 2)


def _row_by_row(
    heads: tuple[Tensor, Tensor, Tensor],
    layouts: tuple[RowLayout, RowLayout],
    scale: float | None,
    window: int | None,
) -> Tensor:
    rows, keys = layouts
    grouped = heads[0].shape[1] != heads[1].shape[1]
    outputs = []
    pieces = (
        torch.split(given, list(layout.lengths), dim=2)
        for given, layout in zip(heads, (rows, keys, keys), strict=True)
    )
    for query, key, value in zip(*pieces, strict=True):
        mask = _mask(query.shape[2], key.shape[2], window, query.device)
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


def _mask(queries: int, keys: int, window: int | None, device: torch.device) -> Tensor | None:
    """bool (queries, keys): the ``window`` tokens up to and with oneself; None when plain causal
    will do."""
    fits = window is None or keys <= window
    if fits and queries == keys:
        return None
    ones = torch.ones(queries, keys, dtype=torch.bool, device=device)
    seen = ones.tril(keys - queries)
    return seen if window is None else seen.triu(keys - queries + 1 - window)


@cache
def _varlen_options() -> frozenset[str]:
    """Parameters of this torch's variable-length kernel; empty where there is none."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return frozenset()
    return frozenset(inspect.signature(varlen_attn).parameters)


def _varlen(
    heads: tuple[Tensor, Tensor, Tensor],
    layouts: tuple[RowLayout, RowLayout],
    scale: float | None,
    window: int | None,
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    rows, keys = layouts
    query, key, value = (x[0].transpose(0, 1) for x in heads)
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
        keys.offsets_R,
        rows.longest,
        keys.longest,
        scale=scale,
        window_size=(-1 if window is None else window - 1, 0),
        **options,
    )
    output_1NHD: Tensor = output_NHD.unsqueeze(0)
    return output_1NHD
