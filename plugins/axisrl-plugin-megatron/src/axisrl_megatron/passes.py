"""Passes over packed batches, whichever part of the model this rank holds: answers, and a step's
gradient.

A model that is not a pipeline goes through :mod:`axisrl.ops.micro_batch`. Stages of a pipeline all
pass the same micro-batches, those that train on something; the last one has losses, statistics and
answers, and hands answers to the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from axisrl.ops import micro_batch
from axisrl.ops.step_totals import StepTotals
from axisrl.ops.token_batch import TokenBatch, token_batch
from axisrl.protocols.loss import Loss
from axisrl.types import FloatArray, ModelSpec, PackedBatch
from axisrl_megatron.held import HeldModel
from axisrl_megatron.portion import Portion


class _Finished:
    """A model of one micro-batch, whose hidden states are there."""

    def __init__(self, held: HeldModel, portion: Portion, hidden_N1H: Tensor) -> None:
        self._held = held
        self._portion = portion
        self._hidden_N1H = hidden_N1H

    @property
    def spec(self) -> ModelSpec:
        return self._held.spec

    @property
    def device(self) -> torch.device:
        return self._held.device

    def logprobs(self, tokens: TokenBatch, *, entropy: bool = False) -> tuple[Tensor, Tensor]:
        return self._held.logprobs_of(self._hidden_N1H, self._portion, entropy=entropy)

    def values(self, tokens: TokenBatch) -> Tensor:
        return self._held.values_of(self._hidden_N1H, self._portion)


def logprob_answers(held: HeldModel, batches: Sequence[PackedBatch]) -> list[FloatArray]:
    """As :func:`axisrl.ops.micro_batch.logprob_answers`."""
    if held.mesh.layout.pipeline == 1:
        return micro_batch.logprob_answers(held, batches)
    micro_batch.check_policy(held.spec)
    return _answers(held, batches)


def value_answers(held: HeldModel, batches: Sequence[PackedBatch]) -> list[FloatArray]:
    """As :func:`axisrl.ops.micro_batch.value_answers`."""
    if held.mesh.layout.pipeline == 1:
        return micro_batch.value_answers(held, batches)
    micro_batch.check_value(held.spec)
    return _answers(held, batches)


def add_gradients(
    held: HeldModel, batches: Sequence[PackedBatch], loss: Loss, totals: StepTotals
) -> None:
    """As :func:`axisrl.ops.micro_batch.add_gradients`; of stages the last one has the totals."""
    if held.mesh.layout.pipeline == 1:
        micro_batch.add_gradients(held, batches, loss, totals)
        return
    from axisrl_megatron.schedule import forward_backward

    def finish(portion: Portion, hidden_N1H: Tensor) -> Tensor:
        model, tokens = _Finished(held, portion, hidden_N1H), portion.tokens
        inputs = micro_batch.loss_inputs(model, tokens, loss.needs)
        return micro_batch.micro_loss(loss, inputs, tokens, totals)

    totals.tokens += sum(batch.tokens for batch in batches)
    forward_backward(held, [each for each in _tokens(held, batches) if each is not None], finish)


def _answers(held: HeldModel, batches: Sequence[PackedBatch]) -> list[FloatArray]:
    from axisrl_megatron.schedule import forward

    def finish(portion: Portion, hidden_N1H: Tensor) -> Tensor:
        if held.spec.head == "value":
            return portion.tokens.full(held.values_of(hidden_N1H, portion)).float()
        return portion.tokens.full(held.logprobs_of(hidden_N1H, portion)[0]).float()

    tokens = _tokens(held, batches)
    passed = [each for each in tokens if each is not None]
    found = forward(held, passed, finish)
    sizes = [len(each.ids_N) for each in passed]
    whole = torch.cat(found) if found else torch.zeros(sum(sizes), device=held.device)
    held.mesh.from_last_stage(whole)
    parts = iter(np.split(whole.cpu().numpy(), np.cumsum(sizes[:-1])))
    return [
        np.zeros(batch.tokens, np.float32) if each is None else next(parts)
        for batch, each in zip(batches, tokens, strict=True)
    ]


def _tokens(held: HeldModel, batches: Sequence[PackedBatch]) -> list[TokenBatch | None]:
    return [token_batch(batch, held.device) for batch in batches]
