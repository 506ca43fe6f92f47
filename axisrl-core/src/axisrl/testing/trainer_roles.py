"""What a :class:`axisrl.protocols.TrainerBackend` promises as a value model and as a frozen model.
Its promises as the trainer of a policy are in :mod:`axisrl.testing.trainer`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np

from axisrl.errors import ConfigError
from axisrl.protocols.loss import LossInputs, LossResult
from axisrl.protocols.trainer import TrainerBackend
from axisrl.testing.cases import TrainerCase
from axisrl.testing.harness import CheckFailed, CheckSkipped, Subject, require, require_close
from axisrl.testing.sequences import (
    PullLoss,
    ValueLoss,
    model_spec,
    packed,
    random_samples,
    trained,
)
from axisrl.types import FloatArray, ModelSpec, PackedBatch, Sample

TrainerSubject = Subject[TrainerCase]
_STEPS = 4
_RETURN = 1.5


class Started(NamedTuple):
    """A trainer and the model it holds."""

    trainer: TrainerBackend
    model: ModelSpec


@contextmanager
def started(
    subject: TrainerSubject,
    *,
    head: Literal["lm", "value"] = "lm",
    total_steps: int | None = _STEPS,
) -> Iterator[Started]:
    """The case's trainer on the case's model, stopped afterwards."""
    model = dataclasses.replace(model_spec(subject), head=head)
    context = subject.context(services={**subject.case.services, "model": model})
    trainer: TrainerBackend = subject.build(context)
    if head == "value" and "values" not in trainer.provides:
        raise CheckSkipped("it provides no values")
    trainer.start(model, total_steps=total_steps)
    try:
        yield Started(trainer, model)
    finally:
        trainer.stop()


def values_are_zero_where_masked(subject: TrainerSubject) -> None:
    """One float32 array (N,) a batch, finite, 0 at masked positions; the head is the seed's."""
    seen = []
    for _ in range(2):
        with started(subject, head="value") as (trainer, model):
            batches = [packed(random_samples(model, n, seed=n)) for n in (1, 4)]
            seen.append(trainer.values(batches))
    for batch, values, again in zip(batches, *seen, strict=True):
        require(values.shape == (batch.tokens,), f"shape {values.shape}")
        require(values.dtype == np.float32, f"values are {values.dtype}")
        require(bool(np.isfinite(values).all()), "a value is not finite")
        masked = values[~batch.columns["loss_mask"]]
        require(not masked.any(), f"a masked value is {np.abs(masked).max(initial=0)}")
        require(np.array_equal(values, again), "two value models of one seed differ")


def temperature_changes_no_value(subject: TrainerSubject) -> None:
    """A value is of a state, not of how a token was drawn; greedy ones have values too."""
    with started(subject, head="value") as (trainer, model):
        batch = packed(random_samples(model, 3))
        want = trainer.values([batch])[0]
        for temperature in (0.0, 0.5, 2.0):
            column = np.full(batch.tokens, temperature, np.float32)
            got = trainer.values([_with(batch, temperature=column)])[0]
            require(np.array_equal(got, want), f"values change at temperature {temperature}")


def packing_changes_no_value(subject: TrainerSubject) -> None:
    """Rows together give what each gives alone."""
    with started(subject, head="value") as (trainer, model):
        samples = random_samples(model, 6)
        together = _values(trainer, samples)
        alone = [_values(trainer, [sample]) for sample in samples]
    what = "packed values against single rows"
    require_close(together, np.concatenate(alone), atol=subject.case.tolerance, what=what)


def values_approach_the_returns(subject: TrainerSubject) -> None:
    """A value loss gets V, old values and returns, and no log-probabilities; its steps take V to
    the returns."""
    loss = ValueLoss()
    with started(subject, head="value") as (trainer, model):
        batch = _with_returns(model, seed=0)
        before = trainer.values([batch])[0]
        old = np.linspace(-1, 1, batch.tokens, dtype=np.float32)
        for _ in range(_STEPS):
            trainer.step([_with(batch, old_values=old)], loss)
        after = trainer.values([batch])[0]
    inputs = loss.seen[0]
    what = "the first step's values"
    got = _given(batch, inputs.values_N, what)
    require_close(got, trained(batch, before), atol=subject.case.tolerance, what=what)
    require(bool(inputs.logprobs_N.isnan().all()), "a value model's log-probabilities are not NaN")
    what = "old values given to the loss"
    told = _given(batch, inputs.old_values_N, what)
    require_close(told, trained(batch, old), atol=0, what=what)
    was, now = (float(np.abs(trained(batch, v) - _RETURN).mean()) for v in (before, after))
    require(now < was, f"{_STEPS} steps took values from {was:.6g} to {now:.6g} off the returns")


def value_checkpoints_continue_bit_for_bit(subject: TrainerSubject) -> None:
    """Head and its optimizer state included."""
    folder = subject.work_dir / "checkpoint"
    folder.mkdir()
    with started(subject, head="value") as (trainer, model):
        batches = [_with_returns(model, seed=seed) for seed in range(3)]
        trainer.step([batches[0]], ValueLoss())
        trainer.save(folder)
        want = [_value_step(trainer, batch) for batch in batches[1:]]
    with started(subject, head="value") as (trainer, _):
        trainer.load(folder)
        got = [_value_step(trainer, batch) for batch in batches[1:]]
    for number, (one, other) in enumerate(zip(got, want, strict=True), start=1):
        require(np.array_equal(one, other), f"step {number} after load gave other values")


def losses_of_the_other_model_are_refused(subject: TrainerSubject) -> None:
    """``ConfigError`` for a policy loss on a value model and for a value loss on a policy."""
    with started(subject, head="value") as (trainer, model):
        batch = _with_returns(model, seed=0)
        _refused(lambda: trainer.step([batch], PullLoss()), "a policy loss on a value model")
    with started(subject) as (trainer, _):
        _refused(lambda: trainer.step([batch], ValueLoss()), "a value loss on a policy")


def reference_logprobs_reach_the_loss(subject: TrainerSubject) -> None:
    """The batch's column as it is, when the loss needs it; without the column a
    ``ConfigError``."""
    loss = _ReferenceLoss()
    with started(subject) as (trainer, model):
        batch = packed(random_samples(model, 3))
        given = np.linspace(-3, -1, batch.tokens, dtype=np.float32)
        trainer.step([_with(batch, reference_logprobs=given)], loss)
        _refused(lambda: trainer.step([batch], loss), "a batch without reference_logprobs")
    what = "reference log-probabilities given to the loss"
    got = _given(batch, loss.seen, what)
    require_close(got, trained(batch, given), atol=0, what=what)


def a_frozen_model_answers_as_the_trained_one(subject: TrainerSubject) -> None:
    """Same model, same log-probabilities, without an optimizer."""
    with started(subject) as (trainer, model):
        samples = random_samples(model, 4)
        want = _logprobs(trainer, samples)
    with started(subject, total_steps=None) as (frozen, _):
        got = _logprobs(frozen, samples)
    what = "frozen against trained log-probabilities"
    require_close(got, want, atol=subject.case.tolerance, what=what)


def a_frozen_model_takes_weights(subject: TrainerSubject) -> None:
    """Two updates of another trainer, one after the other: it echoes version and checksum and then
    has that trainer's log-probabilities."""
    with (
        started(subject) as (trainer, model),
        started(subject, total_steps=None) as (frozen, _),
    ):
        samples = random_samples(model, 4)
        for version in (1, 2):
            trainer.step([packed(samples)], PullLoss())
            update = trainer.weight_update(version)
            ack = frozen.update_weights(update)
            told, sent = (ack.version, ack.checksum), (version, update.checksum)
            require(told == sent, f"sent {sent}, echoed {told}")
            want, got = _logprobs(trainer, samples), _logprobs(frozen, samples)
            what = f"log-probabilities after update {version}"
            require_close(got, want, atol=subject.case.tolerance, what=what)


def a_frozen_model_keeps_its_weights_in_a_checkpoint(subject: TrainerSubject) -> None:
    """Those it was given, bit for bit; and it takes the next ones after a load."""
    folder = subject.work_dir / "checkpoint"
    folder.mkdir()
    with started(subject) as (trainer, model):
        samples = random_samples(model, 4)
        trainer.step([packed(samples)], PullLoss())
        with started(subject, total_steps=None) as (frozen, _):
            frozen.update_weights(trainer.weight_update(1))
            frozen.save(folder)
            want = _logprobs(frozen, samples)
        with started(subject, total_steps=None) as (frozen, _):
            frozen.load(folder)
            got = _logprobs(frozen, samples)
            trainer.step([packed(samples)], PullLoss())
            frozen.update_weights(trainer.weight_update(2))
            after = _logprobs(frozen, samples)
        newest = _logprobs(trainer, samples)
    require(np.array_equal(got, want), "a loaded frozen model has other log-probabilities")
    what = "log-probabilities after load and update"
    require_close(after, newest, atol=subject.case.tolerance, what=what)


CHECKS = (
    values_are_zero_where_masked,
    temperature_changes_no_value,
    packing_changes_no_value,
    values_approach_the_returns,
    value_checkpoints_continue_bit_for_bit,
    losses_of_the_other_model_are_refused,
    reference_logprobs_reach_the_loss,
    a_frozen_model_answers_as_the_trained_one,
    a_frozen_model_takes_weights,
    a_frozen_model_keeps_its_weights_in_a_checkpoint,
)


@dataclasses.dataclass(slots=True)
class _ReferenceLoss(PullLoss):
    """Keeps the reference log-probabilities it got."""

    needs: frozenset[str] = frozenset({"reference_logprobs"})
    seen: Any = None

    def __call__(self, batch: LossInputs) -> LossResult:
        self.seen = batch.reference_logprobs_N
        return PullLoss()(batch)


def _given(batch: PackedBatch, tensor_N: Any, what: str) -> FloatArray:
    """A tensor that a loss got, at trained tokens."""
    if tensor_N is None:
        raise CheckFailed(f"{what}: there are none")
    return trained(batch, tensor_N.detach().cpu().numpy())


def _with(batch: PackedBatch, **columns: FloatArray) -> PackedBatch:
    return dataclasses.replace(batch, columns={**batch.columns, **columns})


def _with_returns(model: ModelSpec, seed: int) -> PackedBatch:
    batch = packed(random_samples(model, 3, seed=seed))
    return _with(batch, returns=np.full(batch.tokens, _RETURN, np.float32))


def _values(trainer: TrainerBackend, samples: list[Sample]) -> FloatArray:
    batch = packed(samples)
    return trained(batch, trainer.values([batch])[0])


def _logprobs(trainer: TrainerBackend, samples: list[Sample]) -> FloatArray:
    batch = packed(samples)
    return trained(batch, trainer.logprobs([batch])[0])


def _value_step(trainer: TrainerBackend, batch: PackedBatch) -> FloatArray:
    trainer.step([batch], ValueLoss())
    return trainer.values([batch])[0]


def _refused(attempt: Callable[[], object], what: str) -> None:
    try:
        attempt()
    except ConfigError:
        return
    raise CheckFailed(f"{what} was taken")
