"""What a :class:`axisrl.protocols.OffloadingTrainer` promises as a policy, a value model and a
frozen model. It does not measure memory: that is for a test on the device. A trainer that hands
nothing over is not asked to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from axisrl.errors import RunFailed
from axisrl.plugins.components import TrainerComponent
from axisrl.protocols import OffloadingTrainer, TrainerPart
from axisrl.testing.harness import CheckFailed, CheckSkipped, require
from axisrl.testing.sequences import PullLoss, ValueLoss, packed, random_samples
from axisrl.testing.trainer_roles import Started, TrainerSubject, started
from axisrl.types import PackedBatch

_ALL: tuple[TrainerPart, ...] = ("weights", "optimizer")


class _Offloading(NamedTuple):
    trainer: OffloadingTrainer
    batches: Sequence[PackedBatch]


def a_policy_that_comes_back_steps_as_if_it_had_stayed(subject: TrainerSubject) -> None:
    """Bit for bit, after each part alone and both, twice off and twice back; and its weights can be
    offered without its optimizer."""
    with _offloading(subject) as (trainer, batches):
        want = [_policy_step(trainer, batch) for batch in batches]
    with _offloading(subject) as (trainer, _):
        got = []
        for number, batch in enumerate(batches):
            _away_and_back(trainer, (_ALL, _ALL[:1], _ALL[1:])[number % 3])
            got.append(_policy_step(trainer, batch))
            trainer.offload(["optimizer"])
            checksum = trainer.weight_update(number).checksum
            require(checksum == got[-1], f"without its optimizer it offers {checksum}")
            trainer.reload(["optimizer"])
    require(got == want, f"steps after coming back gave {got} instead of {want}")


def a_value_model_that_comes_back_steps_as_if_it_had_stayed(subject: TrainerSubject) -> None:
    """Bit for bit, head included; values need no optimizer."""
    with _offloading(subject, head="value") as (trainer, batches):
        want = [_value_step(trainer, batch) for batch in batches]
    with _offloading(subject, head="value") as (trainer, _):
        got = []
        for batch in batches:
            _away_and_back(trainer, _ALL)
            trainer.offload(["optimizer"])
            trainer.values([batch])
            trainer.reload(["optimizer"])
            got.append(_value_step(trainer, batch))
    for number, (one, other) in enumerate(zip(got, want, strict=True)):
        require(np.array_equal(one, other), f"step {number} after coming back gave other values")


def a_frozen_model_that_comes_back_answers_as_before(subject: TrainerSubject) -> None:
    """Bit for bit, and it takes the weights of another; it has no optimizer to hand over."""
    with started(subject) as (policy, _), _offloading(subject, total_steps=None) as frozen:
        trainer, batches = frozen
        for version in (1, 2):
            policy.step([batches[0]], PullLoss())
            trainer.update_weights(policy.weight_update(version))
            want = trainer.logprobs(batches)
            _away_and_back(trainer, _ALL)
            for one, other in zip(trainer.logprobs(batches), want, strict=True):
                require(np.array_equal(one, other), f"other answers after update {version}")


def what_needs_memory_is_refused_while_it_is_away(subject: TrainerSubject) -> None:
    """``RunFailed``: a step without either part, the other calls without the weights."""
    with _offloading(subject) as (trainer, batches):
        before = trainer.weight_update(1).checksum
        for part in _ALL:
            trainer.offload([part])
            _refused(lambda: trainer.step([batches[0]], PullLoss()), f"a step without {part}")
            if part == "weights":
                _refused(lambda: trainer.logprobs(batches), "scoring without weights")
                _refused(lambda: trainer.weight_update(2), "an offer without weights")
            trainer.reload([part])
        after = trainer.weight_update(3).checksum
        require(before == after, "a refused call changed the weights")


def checkpoints_need_no_device(subject: TrainerSubject) -> None:
    """Saved and loaded while all is away, a trainer goes on bit for bit once it is back."""
    folder = subject.work_dir / "checkpoint"
    folder.mkdir()
    with _offloading(subject) as (trainer, batches):
        _policy_step(trainer, batches[0])
        trainer.offload(_ALL)
        trainer.save(folder)
        _refused(lambda: trainer.logprobs(batches), "scoring after a save")
        trainer.reload(_ALL)
        want = [_policy_step(trainer, batch) for batch in batches[1:]]
    with _offloading(subject) as (trainer, _):
        trainer.offload(_ALL)
        trainer.load(folder)
        trainer.reload(_ALL)
        got = [_policy_step(trainer, batch) for batch in batches[1:]]
    require(got == want, f"after a load the next steps gave {got} instead of {want}")


@contextmanager
def _offloading(subject: TrainerSubject, **how: Any) -> Iterator[_Offloading]:
    """The started trainer and three batches, where it says that it offloads. Fails when it says so
    and cannot."""
    with started(subject, **how) as (trainer, model):
        says = subject.descriptor
        if isinstance(trainer, OffloadingTrainer):
            yield _Offloading(trainer, _batches(Started(trainer, model)))
            return
        require(
            not (isinstance(says, TrainerComponent) and says.offloads),
            "the component says offloads=True and has no offload and reload",
        )
        raise CheckSkipped("it does not hand memory over")


def _batches(of: Started) -> list[PackedBatch]:
    found = []
    for seed in range(3):
        batch = packed(random_samples(of.model, 3, seed=seed))
        returns = np.full(batch.tokens, 1.5, np.float32)
        found.append(dataclasses.replace(batch, columns={**batch.columns, "returns": returns}))
    return found


def _away_and_back(trainer: OffloadingTrainer, parts: Sequence[TrainerPart]) -> None:
    for move in (trainer.offload, trainer.offload, trainer.reload, trainer.reload):
        move(parts)


def _policy_step(trainer: OffloadingTrainer, batch: PackedBatch) -> str:
    trainer.step([batch], PullLoss())
    return trainer.weight_update(1).checksum


def _value_step(trainer: OffloadingTrainer, batch: PackedBatch) -> Any:
    trainer.step([batch], ValueLoss())
    return trainer.values([batch])[0]


def _refused(attempt: Callable[[], object], what: str) -> None:
    try:
        attempt()
    except RunFailed:
        return
    raise CheckFailed(f"{what} was not refused")


CHECKS = (
    a_policy_that_comes_back_steps_as_if_it_had_stayed,
    a_value_model_that_comes_back_steps_as_if_it_had_stayed,
    a_frozen_model_that_comes_back_answers_as_before,
    what_needs_memory_is_refused_while_it_is_away,
    checkpoints_need_no_device,
)
