"""Each check of a trainer's roles catches one that breaks its promise.

The trainer here is two tables, one row a context token: logits of a policy, values of a value
model. Small enough to be plainly right.
"""

import dataclasses
import hashlib
import itertools
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="losses are torch")

from axisrl.errors import ConfigError  # noqa: E402
from axisrl.protocols import LossInputs  # noqa: E402
from axisrl.testing import CheckSkipped, TrainerCase, TrainerSuite  # noqa: E402
from axisrl.testing import trainer_roles as checks  # noqa: E402
from axisrl.testing.harness import Suite  # noqa: E402
from axisrl.types import StepStats, TensorMeta, WeightAck, WeightUpdate  # noqa: E402

CASE = TrainerCase(use="toy/trainer", model="toy/model")
SIZE = 11
OPTIONAL = ("returns", "old_values", "reference_logprobs")


class RoleSuite(Suite):
    kind = "trainer"
    checks = checks.CHECKS


class ToyModel:
    def fetch(self, cache):
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "config.json").write_text(json.dumps({"vocab_size": SIZE}))
        return cache


class Good:
    provides = frozenset({"values"})

    def __init__(self, context):
        self.folder = context.run_dir

    def start(self, model, total_steps):
        self.head, self.frozen = model.head, total_steps is None
        width = 1 if self.head == "value" else SIZE
        generator = torch.Generator().manual_seed(0)
        self.table = torch.randn(SIZE, width, generator=generator).requires_grad_()
        self.momentum = torch.zeros(SIZE, width)

    def forward(self, batch):
        """(N,) values, or log-probabilities of the labels."""
        rows = self.table[torch.tensor(batch.columns["ids"], dtype=torch.int64)]
        if self.head == "value":
            return rows[:, 0]
        labels = torch.tensor(batch.columns["labels"], dtype=torch.int64)
        return rows.log_softmax(-1).gather(1, labels[:, None])[:, 0]

    def answers(self, batches):
        return [
            torch.where(torch.tensor(b.columns["loss_mask"]), self.forward(b), 0.0).detach().numpy()
            for b in batches
        ]

    def values(self, batches):
        return self.answers(batches)

    def logprobs(self, batches):
        return self.answers(batches)

    def inputs(self, batch, loss):
        given = {f"{n}_N": torch.tensor(batch.columns[n]) for n in OPTIONAL if n in batch.columns}
        computed = self.forward(batch)
        policy = self.head == "lm"
        return LossInputs(
            logprobs_N=computed if policy else torch.full_like(computed, torch.nan),
            values_N=None if policy else computed,
            mask_N=torch.tensor(batch.columns["loss_mask"]),
            advantages_N=torch.tensor(batch.columns["advantages"]),
            rollout_logprobs_N=torch.tensor(batch.columns["rollout_logprobs"]),
            trajectory_N=torch.tensor(batch.columns["trajectory"], dtype=torch.int64),
            **given,
        )

    def check(self, batch, loss):
        if ("values" in loss.needs) != (self.head == "value"):
            raise ConfigError("the other model's loss")
        if "reference_logprobs" in loss.needs - batch.columns.keys():
            raise ConfigError("no column")

    def step(self, batches, loss):
        total = torch.zeros(())
        for batch in batches:
            self.check(batch, loss)
            mask = torch.tensor(batch.columns["loss_mask"])
            weights = torch.tensor(batch.columns["weights"])
            total = total + (loss(self.inputs(batch, loss)).per_token_N * weights)[mask].sum()
        (gradient,) = torch.autograd.grad(total, [self.table])
        with torch.no_grad():
            self.momentum = 0.5 * self.momentum + gradient
            self.table -= 0.5 * self.momentum
        return StepStats(metrics={}, tokens=0, trained_tokens=0, learning_rate=1.0, grad_norm=1.0)

    def digest(self):
        return hashlib.sha256(self.table.detach().numpy().tobytes()).hexdigest()

    def weight_update(self, version):
        path = self.folder / f"{version}.npy"
        np.save(path, self.table.detach().numpy())
        return WeightUpdate(
            version=version,
            transport="disk",
            location=str(path),
            tensors=(TensorMeta(name="table", shape=(SIZE, SIZE), dtype="float32"),),
            checksum=self.digest(),
        )

    def update_weights(self, update):
        self.table = torch.tensor(np.load(update.location))
        return WeightAck(version=update.version, checksum=self.digest())

    def save(self, path):
        np.save(path / "table.npy", self.table.detach().numpy())
        np.save(path / "momentum.npy", self.momentum.numpy())

    def load(self, path):
        self.table = torch.tensor(np.load(path / "table.npy")).requires_grad_()
        self.momentum = torch.tensor(np.load(path / "momentum.npy"))

    def stop(self):
        pass


class ValuesWhereMasked(Good):
    def values(self, batches):
        return [value + np.float32(1) for value in super().values(batches)]


class DoubleValues(Good):
    def values(self, batches):
        return [value.astype(np.float64) for value in super().values(batches)]


class AnotherHeadEachTime(Good):
    starts = itertools.count()

    def start(self, model, total_steps):
        super().start(model, total_steps)
        self.table = (self.table.detach() + next(self.starts)).requires_grad_()


class DividesByTemperature(Good):
    def forward(self, batch):
        temperature = torch.tensor(batch.columns["temperature"])
        return super().forward(batch) / (temperature if self.head == "value" else 1.0)


class LooksAcrossRows(Good):
    def forward(self, batch):
        return super().forward(batch) - 0.001 * int(batch.columns["ids"][0])


class ClimbsAway(Good):
    def step(self, batches, loss):
        before = self.table.detach().clone()
        stats = super().step(batches, loss)
        with torch.no_grad():
            self.table += 2 * (before - self.table)
        return stats


def changed(**fields):
    """A trainer whose losses get other inputs."""

    class Changed(Good):
        def inputs(self, batch, loss):
            return dataclasses.replace(super().inputs(batch, loss), **fields)

    return Changed


class LogprobsForValueLosses(Good):
    def inputs(self, batch, loss):
        inputs = super().inputs(batch, loss)
        return dataclasses.replace(inputs, logprobs_N=torch.zeros_like(inputs.logprobs_N))


class ForgetsTheMomentum(Good):
    def load(self, path):
        super().load(path)
        self.momentum *= 0


class TakesAnyLoss(Good):
    def check(self, batch, loss):
        pass


class MakesUpReferences(Good):
    def inputs(self, batch, loss):
        inputs = super().inputs(batch, loss)
        return dataclasses.replace(inputs, reference_logprobs_N=inputs.logprobs_N)


class FrozenIsAnotherModel(Good):
    def start(self, model, total_steps):
        super().start(model, total_steps)
        if self.frozen:
            self.table = self.table.detach() * 2


class EchoesWithoutLoading(Good):
    def update_weights(self, update):
        return WeightAck(version=update.version, checksum=update.checksum)


class EchoesTheOldVersion(Good):
    def update_weights(self, update):
        return dataclasses.replace(super().update_weights(update), version=update.version - 1)


class AddsToWhatItHas(Good):
    def update_weights(self, update):
        old = self.table
        ack = super().update_weights(update)
        if update.version > 1:
            self.table = self.table + 0.1 * old
        return ack


class SavesNothingFrozen(Good):
    def load(self, path):
        if not self.frozen:
            super().load(path)


class TakesNothingAfterALoad(Good):
    loaded = False

    def load(self, path):
        super().load(path)
        self.loaded = True

    def update_weights(self, update):
        old = self.table
        ack = super().update_weights(update)
        self.table = old if self.loaded else self.table
        return ack


BROKEN = [
    (checks.values_are_zero_where_masked, ValuesWhereMasked, "a masked value is 1"),
    (checks.values_are_zero_where_masked, DoubleValues, "are float64"),
    (checks.values_are_zero_where_masked, AnotherHeadEachTime, "of one seed differ"),
    (checks.temperature_changes_no_value, DividesByTemperature, "change at temperature"),
    (checks.packing_changes_no_value, LooksAcrossRows, "against single rows: off by"),
    (checks.values_approach_the_returns, ClimbsAway, "steps took values from"),
    (checks.values_approach_the_returns, LogprobsForValueLosses, "are not NaN"),
    (checks.values_approach_the_returns, changed(old_values_N=None), "old values .* none"),
    (checks.value_checkpoints_continue_bit_for_bit, ForgetsTheMomentum, "gave other values"),
    (checks.reference_logprobs_reach_the_loss, changed(reference_logprobs_N=None), "are none"),
    (checks.reference_logprobs_reach_the_loss, MakesUpReferences, "given to the loss: off by"),
    (checks.reference_logprobs_reach_the_loss, TakesAnyLoss, "without reference_logprobs was"),
    (checks.a_frozen_model_answers_as_the_trained_one, FrozenIsAnotherModel, "off by"),
    (checks.a_frozen_model_takes_weights, EchoesWithoutLoading, "after update 1: off by"),
    (checks.a_frozen_model_takes_weights, EchoesTheOldVersion, "echoed"),
    (checks.a_frozen_model_takes_weights, AddsToWhatItHas, "after update 2: off by"),
    (
        checks.a_frozen_model_keeps_its_weights_in_a_checkpoint,
        SavesNothingFrozen,
        "other log-probabilities",
    ),
    (
        checks.a_frozen_model_keeps_its_weights_in_a_checkpoint,
        TakesNothingAfterALoad,
        "after load and update: off by",
    ),
]


def world(make):
    return lambda ref, context: ToyModel() if ref.kind == "model" else make(context)


def test_a_good_trainer_keeps_every_promise(trial):
    trial.passes(RoleSuite, CASE, builder=world(Good))


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_trainer_is_caught(trial, check, make, told):
    trial.fails(check, CASE, told=told, builder=world(make))


@pytest.mark.parametrize(
    ("head", "told"), [("value", "a policy loss on a value model"), ("lm", "a value loss on a")]
)
def test_a_trainer_that_takes_the_other_models_loss_is_caught(trial, head, told):
    class TakesOne(Good):
        def step(self, batches, loss):
            return super().step(batches, loss) if self.head != head else None

    check = checks.losses_of_the_other_model_are_refused
    trial.fails(check, CASE, told=told, builder=world(TakesOne))


def test_a_trainer_without_values_is_not_asked_for_them(trial):
    class Bare(Good):
        provides = frozenset()

    with pytest.raises(CheckSkipped, match="provides no values"):
        trial(checks.values_are_zero_where_masked, CASE, builder=world(Bare))


def test_every_check_catches_something_and_is_in_the_suite():
    caught = {check for check, _, _ in BROKEN} | {checks.losses_of_the_other_model_are_refused}
    assert caught == set(checks.CHECKS) <= set(TrainerSuite.checks)
