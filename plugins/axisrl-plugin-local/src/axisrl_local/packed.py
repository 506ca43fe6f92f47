"""Attention over packed rows (:mod:`axisrl.ops.row_attention`) for models of transformers.

Registered with transformers' public ``AttentionInterface``; the trainer passes the row layout to
the model as the keyword ``rows``, which the layers hand on to the attention function.

It does not drop attention weights: a policy under dropout is not the policy that was sampled.

Shapes: ``N`` tokens, ``H`` query heads, ``K`` key-value heads, ``D`` head size, ``R`` rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from axisrl.ops.row_attention import row_attention
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
    return row_attention(heads_1HND, rows, scale=scale, window=window), None
