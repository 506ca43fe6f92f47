"""FlexAttention as a core attention: the mask is a function of two tokens, here "same row, not
later". ``trainer.attention: axisrl_megatron.flex:FlexRowAttention``.

It shows what the seam takes: another mask (a tree of rows) is another function of the batch. On
CUDA the kernel is compiled when it is first used; elsewhere torch computes it plainly, in memory of
the square of the tokens, and without gradients.

Shapes: ``N`` tokens, ``H`` query heads, ``K`` key-value heads, ``D`` head size; of one rank.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from megatron.core.transformer import TransformerConfig
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from axisrl_megatron.attention import RowParams


class FlexRowAttention(nn.Module):
    """Causal attention inside each row, by torch's FlexAttention."""

    def __init__(self, config: TransformerConfig, layer_number: int, **options: Any) -> None:
        """``options`` are what Megatron gives every core attention; of them the scale is used."""
        super().__init__()
        self._scale: float | None = options.get("softmax_scale")

    def forward(
        self,
        query_N1HD: Tensor,
        key_N1KD: Tensor,
        value_N1KD: Tensor,
        attention_mask: None,
        **options: Any,
    ) -> Tensor:
        """(N, 1, H * D)."""
        params: RowParams = options["packed_seq_params"]
        query, key, value = (x.permute(1, 2, 0, 3) for x in (query_N1HD, key_N1KD, value_N1KD))
        found_1HND: Tensor = _kernel(query.is_cuda)(
            query,
            key,
            value,
            block_mask=_mask(params, query.device),
            scale=self._scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return found_1HND.permute(2, 0, 1, 3).flatten(2)


@cache
def _kernel(compiled: bool) -> Any:
    plain: Any = flex_attention
    return torch.compile(plain) if compiled else plain


def _mask(params: RowParams, device: torch.device) -> BlockMask:
    """Made by the first layer of a batch, and kept for the others."""
    if "flex" not in params.kept:
        params.kept["flex"] = _made(params, device)
    mask: BlockMask = params.kept["flex"]
    return mask


def _made(params: RowParams, device: torch.device) -> BlockMask:
    lengths = torch.tensor(params.layout.lengths, device=device)
    row_N = torch.arange(len(lengths), device=device).repeat_interleave(lengths)

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (row_N[query] == row_N[key])

    return create_block_mask(visible, None, None, len(row_N), len(row_N), device=device)
