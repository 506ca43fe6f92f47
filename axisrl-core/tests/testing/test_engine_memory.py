"""Each check of memory hand-over catches an engine that breaks its promise.

The model here is one number, the log-odds of token 5 against all others.
"""

import asyncio
import json

import numpy as np
import pytest

from axisrl.errors import EngineFailure, WeightSyncError
from axisrl.plugins import EngineComponent
from axisrl.testing import CheckSkipped, EngineCase, EngineSuite
from axisrl.testing import engine_memory as checks
from axisrl.testing.fakes import CharTokenizer
from axisrl.testing.harness import Suite
from axisrl.types import GenerateResult, StepStats, WeightAck, WeightUpdate

SIZE = 11
CASE = EngineCase(
    use="toy/engine",
    model="toy/model",
    trainer="toy/trainer",
    services={"tokenizer": CharTokenizer()},
    limit_s=5.0,
)


class MemorySuite(Suite):
    kind = "engine"
    checks = checks.CHECKS


class ToyModel:
    def fetch(self, cache):
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "config.json").write_text(json.dumps({"vocab_size": SIZE}))
        return cache


def distribution(bias, temperature):
    """Log-probabilities of every token."""
    scaled = np.where(np.arange(SIZE) == 5, bias, 0.0) / temperature
    return (scaled - np.logaddexp.reduce(scaled)).astype(np.float32)


class ToyTrainer:
    bias = 1.0

    def start(self, model, total_steps):
        pass

    def logprobs(self, batches):
        return [
            np.where(
                c["loss_mask"],
                [distribution(self.bias, t)[label] for label, t in zip(*pair, strict=True)],
                0,
            ).astype(np.float32)
            for c in (batch.columns for batch in batches)
            for pair in [(c["labels"], c["temperature"])]
        ]

    def step(self, batches, loss):
        self.bias += 0.5
        return StepStats(metrics={}, tokens=0, trained_tokens=0, learning_rate=1.0, grad_norm=1.0)

    def weight_update(self, version):
        text = repr(self.bias)
        return WeightUpdate(
            version=version, transport="disk", location=text, tensors=(), checksum=text
        )

    def stop(self):
        pass


class Good:
    def __init__(self, context):
        self.bias, self.version, self.running = 1.0, 0, 0
        self.away, self.back, self.gone = set(), asyncio.Event(), {}
        self.back.set()

    async def start(self, model):
        pass

    async def generate(self, request):
        gone = self.gone.setdefault(request.session, asyncio.Event())
        while not (self.back.is_set() or gone.is_set()):
            await asyncio.sleep(0)
        self.running += 1
        try:
            return await self.draw(request, gone)
        finally:
            self.running -= 1

    async def draw(self, request, gone):
        numbers, ids, logprobs = np.random.default_rng(request.seed), [], []
        while len(ids) < request.sampling.max_tokens and not gone.is_set():
            await asyncio.sleep(0)
            logp = distribution(self.bias, request.sampling.temperature)
            ids.append(min(int(np.searchsorted(np.exp(logp).cumsum(), numbers.random())), SIZE - 1))
            logprobs.append(logp[ids[-1]])
        return GenerateResult(
            ids=np.asarray(ids, np.int32),
            logprobs=np.asarray(logprobs, np.float32),
            versions=np.full(len(ids), self.version, np.int32),
            finish_reason="abort" if gone.is_set() else "length",
        )

    async def abort(self, session=None):
        for name, gone in self.gone.items():
            if session in (None, name):
                gone.set()
        return 1

    async def offload(self, parts):
        if self.running:
            raise EngineFailure("requests run")
        self.away.update(parts)
        self.back.clear()

    async def reload(self, parts):
        self.away.difference_update(parts)
        if not self.away:
            self.back.set()

    async def update_weights(self, update):
        if "weights" in self.away:
            raise WeightSyncError("they are away")
        self.bias, self.version = float(update.location), update.version
        return WeightAck(version=update.version, checksum=update.checksum)

    async def pause(self):
        pass

    async def resume(self):
        pass

    async def stop(self):
        pass


class ComesBackAsItStarted(Good):
    async def reload(self, parts):
        self.bias = 1.0
        await super().reload(parts)


class ComesBackAsAnother(Good):
    async def reload(self, parts):
        self.bias += 3.0
        await super().reload(parts)


class CountsUp(Good):
    async def reload(self, parts):
        self.version += 1
        await super().reload(parts)


class ServesTooEarly(Good):
    async def reload(self, parts):
        await super().reload(parts)
        self.back.set()


class NeverWaits(Good):
    async def offload(self, parts):
        await super().offload(parts)
        self.back.set()


class WantsAllForAnUpdate(Good):
    async def update_weights(self, update):
        ack = await super().update_weights(update)
        return WeightAck(version=0, checksum="") if self.away else ack


class UpdatesWhatIsAway(Good):
    async def update_weights(self, update):
        self.away.discard("weights")
        return await super().update_weights(update)


class LeavesUnderRequests(Good):
    async def offload(self, parts):
        self.away.update(parts)


BROKEN = [
    (checks.memory_that_comes_back_changes_nothing, ComesBackAsAnother, "drew|off by"),
    (checks.memory_that_comes_back_changes_nothing, CountsUp, r"came back: versions \[1|versions"),
    (checks.requests_wait_while_memory_is_away, ServesTooEarly, "before kv_cache was back"),
    (checks.requests_wait_while_memory_is_away, NeverWaits, "not aborted|before weights was back"),
    (checks.new_weights_come_before_the_cache, WantsAllForAnUpdate, "sent .*, echoed"),
    (checks.new_weights_come_before_the_cache, ComesBackAsItStarted, "against trainer"),
    (checks.weights_that_are_away_take_no_update, UpdatesWhatIsAway, "an update was taken"),
    (checks.memory_in_use_is_not_handed_over, LeavesUnderRequests, "under a running request"),
]


def world(make):
    """A builder of the toy model, its trainer and the engine under test."""
    made = {"model": lambda context: ToyModel(), "trainer": lambda context: ToyTrainer()}
    return lambda ref, context: made.get(ref.kind, make)(context)


def test_a_good_engine_passes_every_check(trial):
    trial.passes(MemorySuite, CASE, builder=world(Good))


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_engine_is_caught(trial, check, make, told):
    trial.fails(check, CASE, told=told, builder=world(make))


class KeepsAll:
    """A good engine without the hooks."""

    def __init__(self, context):
        self._good = Good(context)

    def __getattr__(self, name):
        if name in ("offload", "reload"):
            raise AttributeError(name)
        return getattr(self._good, name)


def test_an_engine_that_hands_nothing_over_is_not_asked_to(trial):
    with pytest.raises(CheckSkipped, match="does not hand memory over"):
        trial(checks.memory_in_use_is_not_handed_over, CASE, builder=world(KeepsAll))


def test_an_engine_that_says_it_offloads_and_cannot_is_caught(trial):
    says = EngineComponent(name="engine", target="toy:Engine", offloads=True)
    check, told = checks.memory_in_use_is_not_handed_over, "says offloads=True"
    trial.fails(check, CASE, told=told, says=says, builder=world(KeepsAll))


def test_every_check_catches_something_and_is_in_the_suite():
    assert {check for check, _, _ in BROKEN} == set(checks.CHECKS) <= set(EngineSuite.checks)
