"""What a :class:`axisrl.protocols.TrainerBackend` promises. It does not measure speed or memory.
Value models and frozen models are in :mod:`axisrl.testing.trainer_roles`, memory hand-over in
:mod:`axisrl.testing.trainer_memory`.

A distribution's temperature is checked from outside: over all labels of one position the
probabilities sum to 1, and those at temperature T are those at 1, raised to 1/T and normalised.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from axisrl.plugins.components import TrainerComponent
from axisrl.protocols.trainer import TrainerBackend
from axisrl.testing import trainer_memory, trainer_roles
from axisrl.testing.harness import CheckSkipped, Suite, require, require_close
from axisrl.testing.sequences import (
    PullLoss,
    RatioLoss,
    model_spec,
    packed,
    random_samples,
    trained,
    vocabulary,
)
from axisrl.testing.trainer_roles import TrainerSubject, started
from axisrl.types import FloatArray, ModelSpec, PackedBatch, Sample

_PROVIDES = frozenset({"old_logprobs", "entropy", "values"})
_TEMPERATURES = (1.0, 0.7, 1.3)
_MEANINGLESS = ("advantages", "rollout_logprobs", "temperature", "weights")


def logprobs_are_of_a_distribution_at_its_temperature(subject: TrainerSubject) -> None:
    """Over the whole vocabulary they sum to 1, and follow from those at temperature 1."""
    with started(subject) as (trainer, model):
        at = {t: _over_vocabulary(trainer, model, t) for t in _TEMPERATURES}
    for temperature, logprobs in at.items():
        require(bool((logprobs <= 1e-6).all()), f"at temperature {temperature} one is above 0")
        total = float(np.exp(logprobs.astype(np.float64)).sum())
        require_close(total, 1.0, atol=1e-4, what=f"the sum at temperature {temperature}")
        scaled = at[1.0].astype(np.float64) / temperature
        want = scaled - np.logaddexp.reduce(scaled)
        what = f"log-probabilities at temperature {temperature}"
        require_close(logprobs, want, atol=10 * subject.case.tolerance, what=what)


def logprobs_are_zero_where_masked(subject: TrainerSubject) -> None:
    """One float32 array (N,) a batch, finite, 0 at masked positions."""
    with started(subject) as (trainer, model):
        batches = [packed(random_samples(model, n, seed=n)) for n in (1, 4)]
        for batch, logprobs in zip(batches, trainer.logprobs(batches), strict=True):
            require(logprobs.shape == (batch.tokens,), f"shape {logprobs.shape}")
            require(logprobs.dtype == np.float32, f"log-probabilities are {logprobs.dtype}")
            require(bool(np.isfinite(logprobs).all()), "a log-probability is not finite")
            masked = logprobs[~batch.columns["loss_mask"]]
            require(not masked.any(), f"a masked log-probability is {np.abs(masked).max()}")


def packing_changes_no_logprob(subject: TrainerSubject) -> None:
    """Rows together give what each gives alone: nothing is attended across rows."""
    with started(subject) as (trainer, model):
        samples = random_samples(model, 6)
        whole = packed(samples)
        together = trained(whole, trainer.logprobs([whole])[0])
        alone = [_logprobs(trainer, [sample]) for sample in samples]
    what = "packed log-probabilities against single rows"
    require_close(together, np.concatenate(alone), atol=subject.case.tolerance, what=what)


def steps_learn(subject: TrainerSubject) -> None:
    """A loss that pulls tokens up raises their log-probability; the statistics add up."""
    with started(subject) as (trainer, model):
        samples = random_samples(model, 4)
        batch = packed(samples)
        before = trained(batch, trainer.logprobs([batch])[0])
        for _ in range(3):
            stats = trainer.step([batch], PullLoss())
        after = trained(batch, trainer.logprobs([batch])[0])
    require(
        after.mean() > before.mean(),
        f"three steps took the mean log-probability from {before.mean():.6g} to {after.mean():.6g}",
    )
    count = int(batch.columns["loss_mask"].sum())
    told = (stats.tokens, stats.trained_tokens)
    require(told == (batch.tokens, count), f"tokens {told} of {(batch.tokens, count)}")
    require(stats.learning_rate > 0, f"the learning rate is {stats.learning_rate}")
    require(np.isfinite(stats.grad_norm) and stats.grad_norm > 0, f"grad_norm {stats.grad_norm}")


def micro_batches_change_no_step(subject: TrainerSubject) -> None:
    """One batch of all rows, and rows in another order over three batches."""
    with started(subject) as (trainer, model):
        samples = random_samples(model, 6)
        whole = trainer.step([packed(samples)], PullLoss())
        want = _logprobs(trainer, samples)
    parts = [packed(samples[i::3][::-1]) for i in range(3)]
    with started(subject) as (trainer, _):
        split = trainer.step(parts, PullLoss())
        got = _logprobs(trainer, samples)
    scale = max(1.0, whole.grad_norm)
    require_close(
        split.grad_norm / scale, whole.grad_norm / scale, atol=1e-4, what="the gradient's norm"
    )
    require_close(got, want, atol=10 * subject.case.tolerance, what="log-probabilities afterwards")


def masked_positions_may_hold_nan(subject: TrainerSubject) -> None:
    """Columns of NaN where masked change no weight and make no metric NaN."""
    digests = []
    for poison in (None, float("nan")):
        with started(subject) as (trainer, model):
            batch = packed(random_samples(model, 4))
            if poison is not None:
                batch = _poisoned(batch, poison)
            stats = trainer.step([batch], PullLoss())
            digests.append(trainer.weight_update(1).checksum)
    for name, metric in stats.metrics.items():
        require(np.isfinite(metric.value), f"NaN at masked positions made {name} {metric.value}")
    require(digests[0] == digests[1], "NaN at masked positions changed the weights")


def the_first_update_has_ratio_one(subject: TrainerSubject) -> None:
    """Without old log-probabilities in the batch a loss that needs them sees the current ones."""
    if "old_logprobs" not in subject.build().provides:
        raise CheckSkipped("it provides no old log-probabilities")
    loss = RatioLoss()
    with started(subject) as (trainer, model):
        samples = random_samples(model, 4)
        trainer.step([packed(samples[:1]), packed(samples[1:])], loss)
    require(loss.worst == [0.0, 0.0], f"the log-ratio is off by {loss.worst}, not exactly 0")


def no_weight_is_no_gradient(subject: TrainerSubject) -> None:
    """Tokens of weight 0 leave a gradient of norm 0, and finite weights."""
    with started(subject) as (trainer, model):
        batch = packed(random_samples(model, 3))
        columns = dict(batch.columns) | {"weights": np.zeros(batch.tokens, np.float32)}
        stats = trainer.step([dataclasses.replace(batch, columns=columns)], PullLoss())
        logprobs = trainer.logprobs([batch])[0]
    require(stats.grad_norm == 0, f"the gradient's norm is {stats.grad_norm}")
    require(bool(np.isfinite(logprobs).all()), "log-probabilities are not finite afterwards")


def save_and_load_continue_bit_for_bit(subject: TrainerSubject) -> None:
    """A trainer that loads after one step goes on as the one that never stopped."""
    folder = subject.work_dir / "checkpoint"
    folder.mkdir()
    with started(subject) as (trainer, model):
        batches = [packed(random_samples(model, 3, seed=seed)) for seed in range(3)]
        trainer.step([batches[0]], PullLoss())
        trainer.save(folder)
        want = [_step_digest(trainer, batch) for batch in batches[1:]]
    with started(subject) as (trainer, _):
        trainer.load(folder)
        got = [_step_digest(trainer, batch) for batch in batches[1:]]
    require(got == want, f"after load the next steps gave {got} instead of {want}")


def weight_updates_name_version_and_checksum(subject: TrainerSubject) -> None:
    """The checksum is of the weights: the same twice, another one after a step."""
    with started(subject) as (trainer, model):
        first, again = trainer.weight_update(1), trainer.weight_update(2)
        trainer.step([packed(random_samples(model, 3))], PullLoss())
        stepped = trainer.weight_update(3)
    require(
        [u.version for u in (first, again, stepped)] == [1, 2, 3], "a version is not as asked for"
    )
    require(first.checksum == again.checksum, "the same weights got two checksums")
    require(first.checksum != stepped.checksum, "a step did not change the checksum")
    require(first.tensors, "the update names no tensors")
    if isinstance(subject.descriptor, TrainerComponent):
        known = subject.descriptor.transports
        require(first.transport in known, f"transport {first.transport!r} is none of {known}")


def same_seed_same_weights(subject: TrainerSubject) -> None:
    """Two trainers after the same step hold the same bits."""
    digests = []
    for _ in range(2):
        with started(subject) as (trainer, model):
            digests.append(_step_digest(trainer, packed(random_samples(model, 4))))
    require(digests[0] == digests[1], f"two trainers hold {digests}")


def stop_is_idempotent(subject: TrainerSubject) -> None:
    """And says what it provides before it starts."""
    trainer: TrainerBackend = subject.build()
    unknown = sorted(trainer.provides - _PROVIDES)
    require(not unknown, f"provides {', '.join(unknown)}, which no loss can need")
    trainer.start(model_spec(subject), 4)
    trainer.stop()
    trainer.stop()


POLICY_CHECKS = (
    logprobs_are_of_a_distribution_at_its_temperature,
    logprobs_are_zero_where_masked,
    packing_changes_no_logprob,
    steps_learn,
    micro_batches_change_no_step,
    masked_positions_may_hold_nan,
    the_first_update_has_ratio_one,
    no_weight_is_no_gradient,
    save_and_load_continue_bit_for_bit,
    weight_updates_name_version_and_checksum,
    same_seed_same_weights,
    stop_is_idempotent,
)


class TrainerSuite(Suite):
    """Tries a trainer backend with ``TrainerCase``s."""

    kind = "trainer"
    checks = (*POLICY_CHECKS, *trainer_roles.CHECKS, *trainer_memory.CHECKS)


def _logprobs(trainer: TrainerBackend, samples: list[Sample]) -> FloatArray:
    batch = packed(samples)
    return trained(batch, trainer.logprobs([batch])[0])


def _over_vocabulary(trainer: TrainerBackend, model: ModelSpec, temperature: float) -> FloatArray:
    """Log-probability of every token of the vocabulary at one position."""
    sample = random_samples(model, 1, temperature=temperature)[0]
    last = len(sample.ids)
    mask = np.arange(last) == last - 1
    rows = []
    for label in range(vocabulary(model)):
        labels = np.append(sample.labels[:-1], np.int32(label)).astype(np.int32)
        rows.append(dataclasses.replace(sample, labels=labels, loss_mask=mask))
    return _logprobs(trainer, rows)


def _step_digest(trainer: TrainerBackend, batch: PackedBatch) -> str:
    trainer.step([batch], PullLoss())
    return trainer.weight_update(1).checksum


def _poisoned(batch: PackedBatch, poison: float) -> PackedBatch:
    mask = batch.columns["loss_mask"]
    columns: dict[str, Any] = {
        name: np.where(mask, array, np.float32(poison)) if name in _MEANINGLESS else array
        for name, array in batch.columns.items()
    }
    return dataclasses.replace(batch, columns=columns)
