"""Each check of memory hand-over catches a trainer that breaks its promise.

The trainer here is one number a token, moved with momentum by every label it is trained on.
"""

import hashlib
import json

import numpy as np
import pytest

from axisrl.errors import RunFailed
from axisrl.plugins import TrainerComponent
from axisrl.testing import CheckSkipped, TrainerCase, TrainerSuite
from axisrl.testing import trainer_memory as checks
from axisrl.testing.harness import Suite
from axisrl.types import StepStats, WeightAck, WeightUpdate

SIZE = 11
CASE = TrainerCase(use="toy/trainer", model="toy/model")


class MemorySuite(Suite):
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
        self.away = set()

    def start(self, model, total_steps):
        self.weights, self.momentum = np.arange(SIZE, dtype=np.float32), np.zeros(SIZE, np.float32)

    def need(self, *parts):
        if self.away.intersection(parts):
            raise RunFailed("away")

    def logprobs(self, batches):
        self.need("weights")
        return [
            np.where(batch.columns["loss_mask"], -self.weights[batch.columns["labels"]], 0)
            for batch in batches
        ]

    values = logprobs

    def step(self, batches, loss):
        self.need("weights", "optimizer")
        for batch in batches:
            labels = batch.columns["labels"][batch.columns["loss_mask"]]
            self.momentum = np.float32(0.5) * self.momentum
            np.add.at(self.momentum, labels, np.float32(0.1))
        self.weights = self.weights + self.momentum
        return StepStats(metrics={}, tokens=0, trained_tokens=0, learning_rate=1.0, grad_norm=1.0)

    def weight_update(self, version):
        self.need("weights")
        digest = hashlib.sha256(self.weights.tobytes()).hexdigest()
        text = json.dumps(self.weights.tolist())
        return WeightUpdate(
            version=version, transport="disk", location=text, tensors=(), checksum=digest
        )

    def update_weights(self, update):
        self.need("weights")
        self.weights = np.asarray(json.loads(update.location), np.float32)
        return WeightAck(version=update.version, checksum=update.checksum)

    def offload(self, parts):
        self.away.update(parts)

    def reload(self, parts):
        self.away.difference_update(parts)

    def save(self, path):
        np.save(path / "weights.npy", self.weights)
        np.save(path / "momentum.npy", self.momentum)

    def load(self, path):
        self.weights = np.load(path / "weights.npy")
        self.momentum = np.load(path / "momentum.npy")

    def stop(self):
        pass


class ForgetsTheMomentum(Good):
    def offload(self, parts):
        super().offload(parts)
        if "optimizer" in parts:
            self.momentum = self.momentum * 0


class ComesBackRounded(Good):
    def reload(self, parts):
        super().reload(parts)
        if "weights" in parts:
            self.weights = self.weights.astype(np.float16).astype(np.float32)


class OffersNothingAlone(Good):
    def weight_update(self, version):
        self.need("optimizer")
        return super().weight_update(version)


class StepsWithoutItsOptimizer(Good):
    def step(self, batches, loss):
        self.away.discard("optimizer")
        return super().step(batches, loss)


class ScoresFromNowhere(Good):
    def logprobs(self, batches):
        self.away.clear()
        return super().logprobs(batches)


class SavesNothingThatIsAway(Good):
    def save(self, path):
        kept = self.momentum
        self.momentum = kept * (0 if self.away else 1)
        super().save(path)
        self.momentum = kept


class StaysAfterASave(Good):
    def save(self, path):
        super().save(path)
        self.away.clear()


BROKEN = [
    (checks.a_policy_that_comes_back_steps_as_if_it_had_stayed, ForgetsTheMomentum, "instead of"),
    (
        checks.a_value_model_that_comes_back_steps_as_if_it_had_stayed,
        ForgetsTheMomentum,
        "step 1 after coming back gave other values",
    ),
    (
        checks.a_frozen_model_that_comes_back_answers_as_before,
        ComesBackRounded,
        "other answers after update 1",
    ),
    (
        checks.what_needs_memory_is_refused_while_it_is_away,
        StepsWithoutItsOptimizer,
        "a step without optimizer was not refused",
    ),
    (
        checks.what_needs_memory_is_refused_while_it_is_away,
        ScoresFromNowhere,
        "scoring without weights was not refused",
    ),
    (checks.checkpoints_need_no_device, SavesNothingThatIsAway, "after a load the next steps"),
    (checks.checkpoints_need_no_device, StaysAfterASave, "scoring after a save was not refused"),
]


def world(make):
    return lambda ref, context: ToyModel() if ref.kind == "model" else make(context)


def test_a_good_trainer_keeps_every_promise(trial):
    trial.passes(MemorySuite, CASE, builder=world(Good))


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_trainer_is_caught(trial, check, make, told):
    trial.fails(check, CASE, told=told, builder=world(make))


def test_a_policy_that_needs_its_optimizer_to_offer_weights_is_caught(trial):
    check = checks.a_policy_that_comes_back_steps_as_if_it_had_stayed
    with pytest.raises(RunFailed):
        trial(check, CASE, builder=world(OffersNothingAlone))


class KeepsAll:
    """A good trainer without the hooks."""

    provides = frozenset()

    def __init__(self, context):
        self._good = Good(context)

    def __getattr__(self, name):
        if name in ("offload", "reload"):
            raise AttributeError(name)
        return getattr(self._good, name)


def test_a_trainer_that_hands_nothing_over_is_not_asked_to(trial):
    with pytest.raises(CheckSkipped, match="does not hand memory over"):
        trial(checks.checkpoints_need_no_device, CASE, builder=world(KeepsAll))


def test_a_trainer_that_says_it_offloads_and_cannot_is_caught(trial):
    says = TrainerComponent(name="trainer", target="toy:Trainer", offloads=True)
    check, told = checks.checkpoints_need_no_device, "says offloads=True"
    trial.fails(check, CASE, told=told, says=says, builder=world(KeepsAll))


def test_every_check_catches_something_and_is_in_the_suite():
    assert {check for check, _, _ in BROKEN} == set(checks.CHECKS) <= set(TrainerSuite.checks)
