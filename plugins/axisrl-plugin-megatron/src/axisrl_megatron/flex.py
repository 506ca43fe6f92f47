"""FlexAttention as a core attention: the mask is a function of two tokens, here "same row, not
later". ``trainer.attention: axisrl_megatron.flex:FlexRowAttention``.

It shows what the seam takes: another mask (a tree of rows) is another function of the batch. On
CUDA the kernel is compiled when it is first used; elsewhere torch computes it plainly, in memory of
the square of the tokens, and without gradients.

Shapes: ``N`` queries, ``S`` tokens of the batch (N unless ranks divide them), ``H`` query heads,
``K`` key-value heads, ``D`` head size; of one rank.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from axisrl_megatron.attention import CoreAttention, RowParams


class FlexRowAttention(CoreAttention):
    """Causal attention inside each row, by torch's FlexAttention."""

    compiled = True

    def attend(
        self, query_1HND: Tensor, key_1KSD: Tensor, value_1KSD: Tensor, params: RowParams
    ) -> Tensor:
        """(1, N, H, D)."""
        found_1HND: Tensor = _kernel(query_1HND.is_cuda)(
            query_1HND,
            key_1KSD,
            value_1KSD,
            block_mask=_mask(params, query_1HND.device),
            scale=self.scale,
            enable_gqa=query_1HND.shape[1] != key_1KSD.shape[1],
        )
        return found_1HND.transpose(1, 2)


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
    row_S = torch.arange(len(lengths), device=device).repeat_interleave(lengths)
    own_N = None if params.part is None else params.part.own_N(device)

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        token = query if own_N is None else own_N[query]
        return (token >= key) & (row_S[token] == row_S[key])

    queries = len(row_S if own_N is None else own_N)
    return create_block_mask(visible, None, None, queries, len(row_S), device=device)
