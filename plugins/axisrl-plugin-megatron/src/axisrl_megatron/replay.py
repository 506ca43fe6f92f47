"""The experts that an engine chose, on their way to a net's routers (R3, arXiv 2510.11370).

1. A net reads what was kept for its own layers alone. While a micro-batch is computed the next
   one's are read.
2. Experts go through Megatron's layers with the batch they belong to
   (:class:`axisrl_megatron.attention.RowParams`), and each layer tells its own router
   (:mod:`axisrl_megatron.mixture`): micro-batches in flight in a pipeline, and layers that are
   computed again, cannot be mistaken for each other.
3. Tokens whose experts were not kept, and those that fill up a batch, are -1.

It chooses nothing.

Shapes: ``L`` layers of the net, ``N`` tokens, ``K`` experts a token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axisrl.errors import ConfigError, StoreError
from axisrl.protocols import ReadExperts
from axisrl.runtime.routing import has_experts
from axisrl.types import PackedBatch
from axisrl_megatron.attention import RowParams
from axisrl_megatron.portion import Portion

_FIX = "serve the model that is trained, or set rollout.routing=false"


class Replay:
    """What one net replays."""

    def __init__(self, read: ReadExperts, layers: tuple[int, int], model: tuple[int, int]) -> None:
        """``layers`` ``[first, last)`` are the net's; ``model``: how many there are, and experts a
        token."""
        self._read = read
        self._layers = layers
        self._model = model
        self._expected: list[PackedBatch] = []
        self._ahead: dict[int, Future[NDArray[Any]]] = {}

    def expect(self, batches: Sequence[PackedBatch]) -> None:
        """These will pass, in this order, less those that train on nothing."""
        self._expected = [
            batch for batch in batches if has_experts(batch) and batch.columns["loss_mask"].any()
        ]
        self._ahead = {}
        self._start(self._expected[:1])

    def into(self, portion: Portion) -> RowParams:
        """The portion's parameters, with the experts of its tokens where some were kept."""
        batch = portion.tokens.source
        if not has_experts(batch):
            return portion.params
        given_LNK = torch.from_numpy(self._experts(batch))
        return dataclasses.replace(
            portion.params, experts=portion.of_all(given_LNK), first_layer=self._layers[0]
        )

    def _experts(self, batch: PackedBatch) -> NDArray[Any]:
        self._start([batch])
        after = [at for at, one in enumerate(self._expected, start=1) if one is batch]
        self._start(self._expected[after[0] :][:1] if after else [])
        try:
            return self._ahead.pop(id(batch)).result()
        except StoreError as problem:
            problem.message = f"experts that were kept for rollout.routing: {problem.message}"
            raise

    def _start(self, batches: Sequence[PackedBatch]) -> None:
        for batch in batches:
            if id(batch) not in self._ahead:
                self._check(batch)
                self._ahead[id(batch)] = self._read(batch, self._layers)

    def _check(self, batch: PackedBatch) -> None:
        for handle in (row["routing"] for row in batch.handles if "routing" in row):
            layers, _, top = handle.shape
            if (layers, top) != self._model:
                raise ConfigError(
                    f"rollout.routing: the engine told {top} experts in each of {layers} layers, "
                    f"and the model that is trained has {self._model[1]} in {self._model[0]}",
                    fix=_FIX,
                )


def kept_fraction(batches: Sequence[PackedBatch]) -> tuple[int, int]:
    """Tokens whose experts were kept, and all tokens, of the batches that train on something."""
    passed = [batch for batch in batches if batch.columns["loss_mask"].any()]
    kept = [batch.columns["experts_at"] >= 0 for batch in passed if has_experts(batch)]
    return int(sum(np.count_nonzero(each) for each in kept)), sum(one.tokens for one in passed)


def own_part(experts_NK: Tensor, index: int, count: int) -> Tensor:
    """Of ``count`` tokens that are part ``index`` of the tokens (sequence parallel)."""
    return experts_NK if len(experts_NK) == count else experts_NK.narrow(0, index * count, count)
