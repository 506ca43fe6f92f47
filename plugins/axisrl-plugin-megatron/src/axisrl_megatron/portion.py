"""Which tokens of a packed batch this process passes through the layers.

1. Where ranks divide the tokens (context parallel) or a layer's activations (sequence parallel), a
   row of tokens that are never trained follows the others, until the number is one that they
   divide. Nothing after this knows.
2. Of context-parallel ranks each has a part (:mod:`axisrl_megatron.context`).

It runs no model.

Shapes: ``N`` tokens that are here, ``M`` trained tokens of the batch, ``O`` those of them that are
here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from axisrl.ops.row_layout import RowLayout
from axisrl.ops.token_batch import TokenBatch
from axisrl_megatron.attention import RowParams
from axisrl_megatron.context import ContextPart
from axisrl_megatron.mesh import Mesh


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """The net's inputs, and where in them the trained tokens are."""

    tokens: TokenBatch
    """The batch."""
    ids_N: Tensor
    positions_N: Tensor
    params: RowParams
    trained_O: Tensor
    """Which of the N they are."""
    among_O: Tensor | None = None
    """Which of the M they are; None where all are here."""
    count: int
    """M."""

    @classmethod
    def of(cls, tokens: TokenBatch, mesh: Mesh) -> Portion:
        """This rank's of a batch."""
        count = len(tokens.trained_M)
        ids_N, positions_N, rows = _padded(tokens, mesh.layout.token_multiple)
        part = mesh.context_part(len(ids_N))
        if part is None:
            return cls(
                tokens=tokens,
                ids_N=ids_N,
                positions_N=positions_N,
                params=RowParams.of(rows),
                trained_O=tokens.trained_M,
                count=count,
            )
        own_N = part.own_N(ids_N.device)
        place_S = torch.full_like(ids_N, -1)
        place_S[own_N] = torch.arange(len(own_N), device=ids_N.device)
        place_M = place_S[tokens.trained_M]
        among_O = (place_M >= 0).nonzero()[:, 0]
        return cls(
            tokens=tokens,
            ids_N=ids_N[own_N],
            positions_N=positions_N[own_N],
            params=RowParams.of(rows, part),
            trained_O=place_M[among_O],
            among_O=among_O,
            count=count,
        )

    def own(self, given_M: Tensor) -> Tensor:
        """(O,): what belongs to the trained tokens that are here."""
        return given_M if self.among_O is None else given_M[self.among_O]

    def of_all(self, given_XSX: Tensor) -> Tensor:
        """(..., N, ...): what belongs to the tokens that are here, of an array over those of the
        batch along its second axis; -1 at those that fill it up."""
        part: ContextPart | None = self.params.part
        tokens = len(self.ids_N) if part is None else part.tokens
        missing = tokens - given_XSX.shape[1]
        whole = torch.nn.functional.pad(given_XSX, (0, 0, 0, missing), value=-1)
        whole = whole.to(self.ids_N.device, non_blocking=True)
        return whole if part is None else whole[:, part.own_N(self.ids_N.device)]

    def answers(self, own_XO: Tensor) -> Tensor:
        """(..., M), all ranks' answers for their own trained tokens put together; differentiable
        for a loss that every rank computes."""
        part: ContextPart | None = self.params.part
        if part is None or self.among_O is None:
            return own_XO
        return part.answers(own_XO, self.among_O, self.count)


def _padded(tokens: TokenBatch, multiple: int) -> tuple[Tensor, Tensor, RowLayout]:
    """Ids, positions and rows of so many tokens that ``multiple`` divides them."""
    missing = -len(tokens.ids_N) % multiple
    if not missing:
        return tokens.ids_N, tokens.positions_N, tokens.rows
    more = torch.arange(missing, device=tokens.ids_N.device)
    return (
        torch.cat((tokens.ids_N, torch.zeros_like(more))),
        torch.cat((tokens.positions_N, more)),
        RowLayout.from_lengths([*tokens.rows.lengths, missing], tokens.ids_N.device),
    )
