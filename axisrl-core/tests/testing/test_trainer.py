"""Each check of TrainerSuite catches a trainer that breaks its promise.

The trainer here is a table of logits, one row a context token: small enough to be plainly right.
"""

import dataclasses
import hashlib
import itertools
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="losses are torch")

from axisrl.plugins import TrainerComponent  # noqa: E402
from axisrl.protocols import LossInputs  # noqa: E402
from axisrl.testing import TrainerCase  # noqa: E402
from axisrl.testing import trainer as checks  # noqa: E402
from axisrl.testing.harness import Suite  # noqa: E402
from axisrl.types import Metric, StepStats, TensorMeta, WeightUpdate  # noqa: E402

CASE = TrainerCase(use="toy/trainer", model="toy/model")


class PolicySuite(Suite):
    """The suite without value models and frozen ones: those are in test_trainer_roles."""

    kind = "trainer"
    checks = checks.POLICY_CHECKS


DESCRIPTOR = TrainerComponent(name="trainer", target="toy:Trainer", transports=("disk",))
SIZE = 11


class ToyModel:
    def fetch(self, cache):
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "config.json").write_text(json.dumps({"vocab_size": SIZE}))
        return cache


class Good:
    provides = frozenset({"old_logprobs"})

    def __init__(self, context):
        pass

    def start(self, model, total_steps):
        generator = torch.Generator().manual_seed(0)
        self.table = torch.randn(SIZE, SIZE, generator=generator).requires_grad_()
        self.momentum = torch.zeros(SIZE, SIZE)

    def forward(self, batch):
        """(M,) log-probabilities of the trained tokens."""
        mask = batch.columns["loss_mask"]
        ids = torch.tensor(batch.columns["ids"][mask], dtype=torch.int64)
        labels = torch.tensor(batch.columns["labels"][mask], dtype=torch.int64)
        temperature = torch.tensor(batch.columns["temperature"][mask])
        logp = torch.log_softmax(self.table[ids] / temperature[:, None], dim=-1)
        return logp.gather(1, labels[:, None])[:, 0]

    def full(self, batch, values):
        mask = torch.tensor(batch.columns["loss_mask"])
        return torch.zeros(batch.tokens).masked_scatter(mask, values)

    def logprobs(self, batches):
        return [self.full(batch, self.forward(batch)).detach().numpy() for batch in batches]

    def inputs(self, batch, logprobs, needs):
        mask = torch.tensor(batch.columns["loss_mask"])
        return LossInputs(
            logprobs_N=logprobs,
            mask_N=mask,
            advantages_N=torch.tensor(batch.columns["advantages"]),
            rollout_logprobs_N=torch.tensor(batch.columns["rollout_logprobs"]),
            trajectory_N=torch.tensor(batch.columns["trajectory"], dtype=torch.int64),
            old_logprobs_N=self.old(batch, logprobs) if "old_logprobs" in needs else None,
        )

    def old(self, batch, logprobs):
        return logprobs.detach()

    def total(self, batches, loss):
        total = torch.zeros(())
        for batch in batches:
            logprobs = self.full(batch, self.forward(batch))
            numerators = loss(self.inputs(batch, logprobs, loss.needs)).per_token_N
            mask = torch.tensor(batch.columns["loss_mask"])
            weights = torch.tensor(batch.columns["weights"])
            total = total + (numerators[mask] * weights[mask]).sum()
        return total

    def step(self, batches, loss):
        (gradient,) = torch.autograd.grad(self.total(batches, loss), [self.table])
        with torch.no_grad():
            self.momentum = 0.9 * self.momentum + gradient
            self.table -= 0.5 * self.momentum
        return StepStats(
            metrics={},
            tokens=sum(batch.tokens for batch in batches),
            trained_tokens=sum(int(batch.columns["loss_mask"].sum()) for batch in batches),
            learning_rate=0.5,
            grad_norm=float(gradient.norm()),
        )

    def digest(self):
        return hashlib.sha256(self.table.detach().numpy().tobytes()).hexdigest()

    def weight_update(self, version):
        meta = TensorMeta(name="table", shape=(SIZE, SIZE), dtype="float32")
        return WeightUpdate(
            version=version,
            transport="disk",
            location="nowhere",
            tensors=(meta,),
            checksum=self.digest(),
        )

    def save(self, path):
        np.save(path / "table.npy", self.table.detach().numpy())
        np.save(path / "momentum.npy", self.momentum.numpy())

    def load(self, path):
        self.table = torch.tensor(np.load(path / "table.npy")).requires_grad_()
        self.momentum = torch.tensor(np.load(path / "momentum.npy"))

    def stop(self):
        self.table = None


class IgnoresTemperature(Good):
    def forward(self, batch):
        ones = np.ones_like(batch.columns["temperature"])
        columns = dict(batch.columns) | {"temperature": ones}
        return super().forward(dataclasses.replace(batch, columns=columns))


class MultipliesByTemperature(Good):
    def forward(self, batch):
        inverse = 1 / batch.columns["temperature"]
        columns = dict(batch.columns) | {"temperature": inverse.astype(np.float32)}
        return super().forward(dataclasses.replace(batch, columns=columns))


class NotNormalised(Good):
    def forward(self, batch):
        return super().forward(batch) - 0.01


class AlsoWhereMasked(Good):
    def logprobs(self, batches):
        return [array - np.float32(0.5) for array in super().logprobs(batches)]


class Doubles(Good):
    def logprobs(self, batches):
        return [array.astype(np.float64) for array in super().logprobs(batches)]


class LooksAcrossRows(Good):
    """A token's logits also depend on the first token of the batch."""

    def forward(self, batch):
        first = int(batch.columns["ids"][0])
        return super().forward(batch) - 0.001 * first


class ClimbsDown(Good):
    def total(self, batches, loss):
        return -super().total(batches, loss)


class CountsPrompts(Good):
    def step(self, batches, loss):
        stats = super().step(batches, loss)
        return dataclasses.replace(stats, trained_tokens=stats.tokens)


class MeanOfMicroBatches(Good):
    def total(self, batches, loss):
        return super().total(batches, loss) / len(batches)


class OwnDenominator(Good):
    """Divides each micro-batch by its own tokens, as if the weights were not there."""

    def total(self, batches, loss):
        totals = []
        for batch in batches:
            logprobs = self.full(batch, self.forward(batch))
            numerators = loss(self.inputs(batch, logprobs, loss.needs)).per_token_N
            totals.append(numerators.sum() / batch.columns["loss_mask"].sum())
        return torch.stack(totals).mean()


class MultipliesByTheMask(Good):
    """Computes every position and leaves the masked ones out afterwards."""

    def full(self, batch, values):
        everywhere = np.ones_like(batch.columns["loss_mask"])
        columns = dict(batch.columns) | {"loss_mask": everywhere}
        values = self.forward(dataclasses.replace(batch, columns=columns))
        return values * torch.tensor(batch.columns["loss_mask"])


class LossIsNaN(Good):
    """The value goes wrong, the gradient does not."""

    def step(self, batches, loss):
        stats = super().step(batches, loss)
        weighted = [batch.columns["weights"].sum() for batch in batches]
        return dataclasses.replace(
            stats, metrics={"loss/total": Metric(value=float(sum(weighted)))}
        )


class RolloutIsOld(Good):
    def old(self, batch, logprobs):
        return torch.tensor(batch.columns["rollout_logprobs"])


class ForgetsOld(Good):
    def old(self, batch, logprobs):
        return None


class ForgetsTheMomentum(Good):
    def load(self, path):
        super().load(path)
        self.momentum = torch.zeros(SIZE, SIZE)


class ChecksumOfTheVersion(Good):
    def weight_update(self, version):
        update = super().weight_update(version)
        return dataclasses.replace(update, checksum=str(version))


class ConstantChecksum(Good):
    def digest(self):
        return "0"


class OwnNumbering(Good):
    def weight_update(self, version):
        return dataclasses.replace(super().weight_update(version), version=version + 1)


class UnknownTransport(Good):
    def weight_update(self, version):
        return dataclasses.replace(super().weight_update(version), transport="nccl")


class Noisy(Good):
    noise = itertools.count(1)

    def total(self, batches, loss):
        return super().total(batches, loss) * (1 + 0.001 * next(self.noise))


class ProvidesTheFuture(Good):
    provides = frozenset({"old_logprobs", "future"})


BROKEN = [
    (
        checks.logprobs_are_of_a_distribution_at_its_temperature,
        IgnoresTemperature,
        r"at temperature 0\.7: off by",
    ),
    (
        checks.logprobs_are_of_a_distribution_at_its_temperature,
        MultipliesByTemperature,
        r"at temperature 0\.7: off by",
    ),
    (
        checks.logprobs_are_of_a_distribution_at_its_temperature,
        NotNormalised,
        r"the sum at temperature 1\.0: off by",
    ),
    (checks.logprobs_are_zero_where_masked, AlsoWhereMasked, r"is 0\.5"),
    (checks.logprobs_are_zero_where_masked, Doubles, "are float64"),
    (checks.packing_changes_no_logprob, LooksAcrossRows, "against single rows: off by"),
    (checks.steps_learn, ClimbsDown, "three steps took"),
    (checks.steps_learn, CountsPrompts, "tokens"),
    (checks.micro_batches_change_no_step, MeanOfMicroBatches, "the gradient's norm: off by"),
    (checks.micro_batches_change_no_step, OwnDenominator, "off by"),
    (checks.masked_positions_may_hold_nan, MultipliesByTheMask, "changed the weights"),
    (checks.masked_positions_may_hold_nan, LossIsNaN, "made loss/total nan"),
    (checks.the_first_update_has_ratio_one, RolloutIsOld, "not exactly 0"),
    (checks.the_first_update_has_ratio_one, ForgetsOld, "off by .*nan"),
    (checks.no_weight_is_no_gradient, OwnDenominator, "norm is"),
    (checks.save_and_load_continue_bit_for_bit, ForgetsTheMomentum, "after load the next steps"),
    (checks.weight_updates_name_version_and_checksum, ChecksumOfTheVersion, "two checksums"),
    (checks.weight_updates_name_version_and_checksum, ConstantChecksum, "did not change"),
    (checks.weight_updates_name_version_and_checksum, OwnNumbering, "version is not as asked"),
    (checks.weight_updates_name_version_and_checksum, UnknownTransport, "'nccl' is none of"),
    (checks.same_seed_same_weights, Noisy, "two trainers hold"),
    (checks.stop_is_idempotent, ProvidesTheFuture, "provides future"),
]


def world(make):
    return lambda ref, context: ToyModel() if ref.kind == "model" else make(context)


def test_a_good_trainer_passes_every_check(trial):
    trial.passes(PolicySuite, CASE, says=DESCRIPTOR, builder=world(Good))


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_trainer_is_caught(trial, check, make, told):
    trial.fails(check, CASE, told=told, says=DESCRIPTOR, builder=world(make))


def test_every_check_catches_something():
    assert {check for check, _, _ in BROKEN} == set(checks.POLICY_CHECKS)


def test_a_trainer_without_old_logprobs_is_not_asked_for_them(trial):
    class Bare(Good):
        provides = frozenset()

    skips = [checks.the_first_update_has_ratio_one]
    trial.passes(PolicySuite, CASE, says=DESCRIPTOR, builder=world(Bare), skips=skips)
