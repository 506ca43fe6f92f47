"""Core attentions for Megatron's layer spec, where its own need Transformer Engine for packed rows.

A core attention is a class named by ``trainer.attention``. Megatron makes one a layer and calls it
with query, key and value after the rotation of positions; the rows of the batch come as
:class:`RowParams`. Nothing of Megatron is replaced at run time.

Where ranks divide the tokens of a batch (:mod:`axisrl_megatron.context`), a core attention gets its
own rank's queries, and keys and values of all.

Shapes: ``N`` queries, ``S`` tokens of the batch (N unless ranks divide them), ``H`` query heads,
``K`` key-value heads, ``D`` head size; of one rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer import TransformerConfig
from torch import Tensor, nn

from axisrl.ops.row_attention import row_attention
from axisrl.ops.row_layout import RowLayout
from axisrl_megatron.context import ContextPart, Segment


@dataclass
class RowParams(PackedSeqParams):  # type: ignore[misc]
    """The rows of a packed batch, on their way through Megatron's layers.

    Positions were rotated by token (:mod:`axisrl_megatron.net`), so the format is not ``thd``,
    whose rotation counts positions itself, row by row.
    """

    rows: RowLayout | None = None
    part: ContextPart | None = None
    """Which tokens of the batch the queries are; None is all of them, in their order."""
    experts: Tensor | None = None
    """int16 (layers, N, experts a token) to choose again, -1 where the router chooses itself."""
    first_layer: int = 0
    """Which of the model's the first of them is."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What a core attention makes of the rows once, for all layers."""

    @classmethod
    def of(cls, rows: RowLayout, part: ContextPart | None = None) -> RowParams:
        """Of a batch's rows, and this rank's part of them."""
        return cls(
            qkv_format="sbhd",
            cu_seqlens_q=rows.offsets_R,
            cu_seqlens_kv=rows.offsets_R,
            max_seqlen_q=rows.longest,
            max_seqlen_kv=rows.longest,
            rows=rows,
            part=part,
        )

    def experts_of(self, layer: int) -> Tensor | None:
        """(N, experts a token) of a layer by Megatron's number, which counts from 1."""
        return None if self.experts is None else self.experts[layer - 1 - self.first_layer]

    @property
    def layout(self) -> RowLayout:
        """The rows. Raises ``ValueError`` where there are none: another model made this."""
        if self.rows is None:
            raise ValueError("packed_seq_params has no rows")
        return self.rows


class CoreAttention(nn.Module):
    """What core attentions over packed rows have in common: how Megatron calls them. A subclass
    says what a token sees in :meth:`attend`."""

    compiled: ClassVar[bool] = False
    """True where :meth:`attend` is compiled. It then keeps for the backward pass what it likes, of
    other ranks, too."""

    def __init__(self, config: TransformerConfig, layer_number: int, **options: Any) -> None:
        """``options`` are what Megatron gives every core attention; of them the scale is used."""
        super().__init__()
        self.scale: float | None = options.get("softmax_scale")

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
        if params.part is None:
            return self._attended((query_N1HD, key_N1KD, value_N1KD), params)

        def see(both: Tensor) -> Tensor:
            return self._attended((query_N1HD, *both.chunk(2, dim=-1)), params)

        both = torch.cat((key_N1KD, value_N1KD), dim=-1)
        return params.part.seen(both, see, kept=self.compiled)

    def _attended(self, projected: tuple[Tensor, ...], params: RowParams) -> Tensor:
        query, key, value = (x.permute(1, 2, 0, 3) for x in projected)
        return self.attend(query, key, value, params).flatten(2).transpose(0, 1)

    def attend(
        self, query_1HND: Tensor, key_1KSD: Tensor, value_1KSD: Tensor, params: RowParams
    ) -> Tensor:
        """(1, N, H, D). Keys and values are those of the whole batch; ``params.part`` says which of
        its tokens the queries are."""
        raise NotImplementedError


class RowAttention(CoreAttention):
    """Causal attention inside each row (:mod:`axisrl.ops.row_attention`)."""

    def attend(
        self, query_1HND: Tensor, key_1KSD: Tensor, value_1KSD: Tensor, params: RowParams
    ) -> Tensor:
        """(1, N, H, D)."""
        if params.part is None:
            heads = (query_1HND, key_1KSD, value_1KSD)
            return row_attention(heads, params.layout, scale=self.scale)
        found = []
        pieces = query_1HND.split(params.part.length, dim=2)  # type: ignore[no-untyped-call]
        for query, segment in zip(pieces, _segments(params, params.part), strict=True):
            seen = slice(segment.first_key, segment.keys_end)
            heads = (query, key_1KSD[:, :, seen], value_1KSD[:, :, seen])
            found.append(row_attention(heads, segment.queries, keys=segment.keys, scale=self.scale))
        return torch.cat(found, dim=1)


def _segments(params: RowParams, part: ContextPart) -> list[Segment]:
    """Made by the first layer of a batch, and kept for the others."""
    if "segments" not in params.kept:
        params.kept["segments"] = part.segments(params.layout)
    segments: list[Segment] = params.kept["segments"]
    return segments
