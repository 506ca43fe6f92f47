"""A trainer's passes over packed batches, whatever holds the model: answers, and a step's gradient.

The numerators of a loss, summed under ``columns["weights"]``, are what is differentiated; nothing
is divided here. Masked positions are never read, so NaN there changes nothing. It steps no
optimizer.

Shapes: ``N`` tokens of a batch, ``M`` trained ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from axisrl.errors import ConfigError
from axisrl.ops.step_totals import StepTotals
from axisrl.ops.token_batch import TokenBatch, policy_inputs, token_batch, value_inputs
from axisrl.protocols.loss import Loss, LossInputs
from axisrl.types import FloatArray, ModelSpec, PackedBatch

_COLUMNS = frozenset({"reference_logprobs"})
"""What a loss may need that arrives with the batch."""


class PassModel(Protocol):
    """A model that answers for the trained tokens of a batch, with gradients unless they are
    off."""

    @property
    def spec(self) -> ModelSpec:
        """What it was loaded from."""
        ...

    @property
    def device(self) -> torch.device:
        """Where its inputs go."""
        ...

    def logprobs(self, tokens: TokenBatch, *, entropy: bool = False) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies (0 unless asked for), (M,)."""
        ...

    def values(self, tokens: TokenBatch) -> Tensor:
        """V of the states that the trained tokens follow, (M,)."""
        ...


def check_loss(loss: Loss, spec: ModelSpec, provides: frozenset[str]) -> None:
    """Raise ``ConfigError`` when the loss needs what the trainer does not provide, or is of the
    other kind of model."""
    if missing := sorted(loss.needs - provides - _COLUMNS):
        raise ConfigError(
            f"the loss needs {', '.join(missing)}, which the trainer does not provide",
            fix=f"choose a loss that needs no more than {', '.join(sorted(provides))}",
        )
    if spec.head == "value" and loss.needs != {"values"}:
        raise ConfigError(
            f"a policy loss was given to the value model {spec.name!r}: it needs "
            f"{', '.join(sorted(loss.needs)) or 'log-probabilities'}",
            fix="a value model takes a loss that needs values and nothing else",
        )
    if spec.head == "lm" and "values" in loss.needs:
        raise ConfigError(
            f"the loss needs values, and model {spec.name!r} has no value head",
            fix="give value losses to a value model",
        )


def check_policy(spec: ModelSpec) -> None:
    """Raise ``ConfigError`` for a value model."""
    if spec.head == "value":
        raise ConfigError("a value model has no log-probabilities", fix="ask the policy's trainer")


def check_value(spec: ModelSpec) -> None:
    """Raise ``ConfigError`` for a model without a value head."""
    if spec.head != "value":
        raise ConfigError(
            "this model has no value head", fix="start the trainer with model.head value"
        )


def logprob_answers(model: PassModel, batches: Sequence[PackedBatch]) -> list[FloatArray]:
    """Log-probability of each label, 0 where masked; no gradient. Raises ``ConfigError`` for a
    value model."""
    check_policy(model.spec)
    return _answers(model, batches, lambda tokens: model.logprobs(tokens)[0])


def value_answers(model: PassModel, batches: Sequence[PackedBatch]) -> list[FloatArray]:
    """V of the state that each label follows, 0 where masked; no gradient. Raises ``ConfigError``
    for a model without a value head."""
    check_value(model.spec)
    return _answers(model, batches, model.values)


def _answers(
    model: PassModel, batches: Sequence[PackedBatch], answer: Callable[[TokenBatch], Tensor]
) -> list[FloatArray]:
    found: list[FloatArray] = []
    with torch.no_grad():
        for batch in batches:
            tokens = token_batch(batch, model.device)
            if tokens is None:
                found.append(np.zeros(batch.tokens, dtype=np.float32))
            else:
                found.append(tokens.full(answer(tokens)).cpu().numpy())
    return found


def add_gradients(
    model: PassModel, batches: Sequence[PackedBatch], loss: Loss, totals: StepTotals
) -> None:
    """Add the batches' gradient, loss and statistics, one batch after the other."""
    for batch in batches:
        totals.tokens += batch.tokens
        tokens = token_batch(batch, model.device)
        if tokens is not None:
            total = micro_loss(loss, loss_inputs(model, tokens, loss.needs), tokens, totals)
            total.backward()  # type: ignore[no-untyped-call]


def micro_loss(loss: Loss, inputs: LossInputs, tokens: TokenBatch, totals: StepTotals) -> Tensor:
    """One micro-batch's share of the loss, shape (); its statistics are added."""
    trained_M = tokens.trained_M
    result = loss(inputs)
    weights_M = tokens.column("weights")[trained_M]
    total: Tensor = (result.per_token_N[trained_M] * weights_M).sum()
    totals.trained += len(trained_M)
    totals.add_loss(total)
    totals.add_stats(result.stats, trained_M)
    return total


def loss_inputs(model: PassModel, tokens: TokenBatch, needs: frozenset[str]) -> LossInputs:
    """What a loss that needs ``needs`` gets, from one forward pass."""
    if model.spec.head == "value":
        return value_inputs(tokens, tokens.full(model.values(tokens)))
    logprobs_M, entropy_M = model.logprobs(tokens, entropy="entropy" in needs)
    return policy_inputs(tokens, tokens.full(logprobs_M), tokens.full(entropy_M), needs)
