"""Attention over packed rows: causal inside a row, nothing between rows.

Registered with transformers' public ``AttentionInterface``; the trainer passes the row layout to
the model as the keyword ``rows``, which the layers hand on to the attention function.

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

ATTENTION = "axisrl_packed_rows"


def register_packed_attention() -> str:
    """Make the function known to transformers; returns the name to load a model with."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, packed_attention)
    return ATTENTION


def packed_attention(
    module: torch.nn.Module,
    query_1HND: Tensor,
    key_1KND: Tensor,
    value_1KND: Tensor,
    attention_mask: None,
    **options: Any,
) -> tuple[Tensor, None]:
    """An attention function of transformers. ``options``: ``rows``, ``scaling``,
    ``sliding_window``.

    Returns the output, (1, N, H, D), and no attention weights.
    """
    rows: RowLayout = options["rows"]
    scale: float | None = options.get("scaling")
    window: int | None = options.get("sliding_window")
    heads_1HND = (query_1HND, key_1KND, value_1KND)
    if (
        query_1HND.is_cuda
        and query_1HND.dtype == torch.bfloat16
        and "window_size" in _varlen_options()
    ):
        return _varlen(heads_1HND, rows, scale, window), None
    return _row_by_row(heads_1HND, rows, scale, window).transpose(1, 2), None


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
