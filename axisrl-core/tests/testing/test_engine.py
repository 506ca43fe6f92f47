"""Each check of EngineSuite catches an engine that breaks its promise."""

import asyncio
import dataclasses
import json
import math
import zlib

import numpy as np
import pytest

from axisrl.errors import EngineFailure, WeightSyncError
from axisrl.testing import EngineCase, EngineSuite, engine_memory, engine_scores
from axisrl.testing import engine as checks
from axisrl.testing.fakes import CharTokenizer
from axisrl.types import GenerateResult, StepStats, WeightAck, WeightUpdate

CONTEXT = 64
CASE = EngineCase(
    use="toy/engine",
    model="toy/model",
    trainer="toy/trainer",
    services={"tokenizer": CharTokenizer()},
    max_context=CONTEXT,
)
VOCABULARY = CharTokenizer.vocab_size
FIRST_LETTER = 3


class ToyModel:
    """A "model": one number, the log-odds of the letter ``a`` against all other tokens."""

    def fetch(self, cache):
        folder = cache / "toy"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps({"vocab_size": VOCABULARY}))
        return folder


A = FIRST_LETTER + ord("a")


def distribution(bias, temperature):
    """Log-probabilities of every token."""
    logits = np.zeros(VOCABULARY)
    logits[A] = bias
    scaled = logits / temperature
    return scaled - np.logaddexp.reduce(scaled)


def digest(bias):
    return f"{zlib.crc32(np.float64(bias).tobytes()):08x}"


class ToyTrainer:
    provides = frozenset({"old_logprobs"})

    def __init__(self, folder):
        self.bias, self.folder = 1.0, folder

    def start(self, model, total_steps):
        pass

    def logprobs(self, batches):
        return [self._logprobs(batch.columns) for batch in batches]

    def _logprobs(self, columns):
        found = [
            distribution(self.bias, temperature)[label] if trained else 0.0
            for label, temperature, trained in zip(
                columns["labels"], columns["temperature"], columns["loss_mask"], strict=True
            )
        ]
        return np.asarray(found, np.float32)

    def step(self, batches, loss):
        self.bias += 0.5
        return StepStats(metrics={}, tokens=0, trained_tokens=0, learning_rate=1.0, grad_norm=1.0)

    def weight_update(self, version):
        path = self.folder / f"weights-{version}"
        path.write_text(repr(self.bias))
        return WeightUpdate(
            version=version,
            transport="disk",
            location=str(path),
            tensors=(),
            checksum=digest(self.bias),
        )

    def stop(self):
        pass


class Good:
    """Draws from the toy model; correct in every respect."""

    def __init__(self, context):
        self.bias, self.version = 1.0, 0
        self.running = {}
        self.open = asyncio.Event()
        self.open.set()

    async def start(self, model):
        pass

    async def stop(self):
        await self.abort()

    async def pause(self):
        self.open.clear()

    async def resume(self):
        self.open.set()

    async def abort(self, session=None):
        hit = [flag for name, flag in self.running.values() if session in (None, name)]
        for flag in hit:
            flag.set()
        return len(hit)

    async def update_weights(self, update):
        if self.running:
            raise WeightSyncError("requests run")
        self.load(update)
        return WeightAck(version=self.version, checksum=digest(self.bias))

    def load(self, update):
        with open(update.location) as file:
            self.bias = float(file.read())
        self.version = update.version

    async def generate(self, request):
        if len(request.prompt_ids) >= CONTEXT:
            raise EngineFailure("no room")
        await self.open.wait()
        flag = asyncio.Event()
        self.running[request.id] = (request.session, flag)
        try:
            return await self.draw(request, flag)
        finally:
            del self.running[request.id]

    async def draw(self, request, flag):
        before = request.sampled_before
        said = request.prompt_ids[len(request.prompt_ids) - before :].tolist()
        logprobs, reason = [], "length"
        room = min(request.sampling.max_tokens, CONTEXT - len(request.prompt_ids) + before)
        while len(said) < room:
            await asyncio.sleep(0)
            if flag.is_set():
                reason = "abort"
                break
            token, logprob = self.sample(request, len(said))
            said.append(token)
            logprobs.append(logprob)
            if self.ends(said, request.sampling):
                reason = "stop"
                break
        return self.result(said[before:], logprobs, reason)

    def sample(self, request, at):
        sampling = request.sampling
        if sampling.temperature == 0 or sampling.top_k == 1:
            return A, 0.0
        logp = distribution(self.bias, sampling.temperature)
        number = np.random.default_rng([request.seed, at]).random()
        token = int(min(np.searchsorted(np.cumsum(np.exp(logp)), number), VOCABULARY - 1))
        return token, float(logp[token])

    def ends(self, said, sampling):
        tokenizer = CharTokenizer()
        text = tokenizer.decode(said)
        stops = {*tokenizer.stop_ids, *sampling.stop_token_ids}
        return said[-1] in stops or any(stop in text for stop in sampling.stop)

    def result(self, ids, logprobs, reason):
        return GenerateResult(
            ids=np.asarray(ids, np.int32),
            logprobs=np.asarray(logprobs, np.float32),
            versions=np.full(len(ids), self.version, np.int32),
            finish_reason=reason,
        )


class LogprobsAreProbabilities(Good):
    def result(self, ids, logprobs, reason):
        return super().result(ids, [math.exp(value) for value in logprobs], reason)


class ForgetsAVersion(Good):
    def result(self, ids, logprobs, reason):
        result = super().result(ids, logprobs, reason)
        return dataclasses.replace(result, versions=result.versions[1:])


class AlwaysLength(Good):
    def result(self, ids, logprobs, reason):
        return super().result(ids, logprobs, "length" if reason == "stop" else reason)


class DropsTheStopToken(Good):
    def result(self, ids, logprobs, reason):
        if reason == "stop":
            ids, logprobs = ids[:-1], logprobs[:-1]
        return super().result(ids, logprobs, reason)


class IgnoresStopStrings(Good):
    def ends(self, said, sampling):
        return super().ends(said, dataclasses.replace(sampling, stop=()))


class IgnoresTheSeed(Good):
    def sample(self, request, at):
        return super().sample(dataclasses.replace(request, seed=7), at)


class SharesItsRandomNumbers(Good):
    """One generator for all requests."""

    def __init__(self, context):
        super().__init__(context)
        self.numbers = np.random.default_rng(0)

    def sample(self, request, at):
        return super().sample(dataclasses.replace(request, seed=int(self.numbers.integers(99))), at)


class CompanyMatters(Good):
    def sample(self, request, at):
        seed = request.seed + 100 * len(self.running)
        return super().sample(dataclasses.replace(request, seed=seed), at)


class GreedyBySeed(Good):
    def sample(self, request, at):
        if request.sampling.temperature == 0:
            return A + request.seed, 0.0
        return super().sample(request, at)


class IgnoresMasksInLogprobs(Good):
    def sample(self, request, at):
        if request.sampling.top_k == 1:
            return A, float(distribution(self.bias, 1.0)[A])
        return super().sample(request, at)


class RestartsItsNumbers(Good):
    def sample(self, request, at):
        return super().sample(request, at - request.sampled_before)


class LogprobsAtTemperatureOne(Good):
    def sample(self, request, at):
        token, _ = super().sample(request, at)
        return token, float(distribution(self.bias, 1.0)[token])


class EchoesWithoutLoading(Good):
    async def update_weights(self, update):
        self.version = update.version
        return WeightAck(version=update.version, checksum=update.checksum)


class KeepsItsVersion(Good):
    def result(self, ids, logprobs, reason):
        result = super().result(ids, logprobs, reason)
        return dataclasses.replace(result, versions=result.versions * 0)


class EchoesTheOldVersion(Good):
    async def update_weights(self, update):
        ack = await super().update_weights(update)
        return dataclasses.replace(ack, version=ack.version - 1)


class CopiesTheChecksum(Good):
    async def update_weights(self, update):
        await super().update_weights(update)
        return WeightAck(version=update.version, checksum=update.checksum)


class AbortsEverybody(Good):
    async def abort(self, session=None):
        await super().abort()
        return 2


class AbortsNobody(Good):
    async def abort(self, session=None):
        return 0


class NeverPauses(Good):
    async def pause(self):
        pass


class LoadsUnderRequests(Good):
    async def update_weights(self, update):
        self.load(update)
        return WeightAck(version=self.version, checksum=digest(self.bias))


class TakesAnyPrompt(Good):
    async def generate(self, request):
        full = len(request.prompt_ids) >= CONTEXT
        return self.result([A], [-1.0], "length") if full else await super().generate(request)


class RunsOver(Good):
    async def draw(self, request, flag):
        ids = [A] * request.sampling.max_tokens
        return self.result(ids, [-1.0] * len(ids), "length")


BROKEN = [
    (checks.results_are_whole, LogprobsAreProbabilities, "log-probabilities"),
    (checks.results_are_whole, ForgetsAVersion, "versions for"),
    (checks.finish_reasons_are_true, AlwaysLength, r"length"),
    (checks.finish_reasons_are_true, DropsTheStopToken, r"finish stop|where every token"),
    (checks.stop_strings_end_a_request, IgnoresStopStrings, "stop string"),
    (checks.seeds_decide_what_is_drawn, IgnoresTheSeed, "eight seeds drew the same"),
    (checks.seeds_decide_what_is_drawn, SharesItsRandomNumbers, "seed 0 drew"),
    (checks.company_changes_nothing, CompanyMatters, "request 0 alone: drew"),
    (checks.greedy_is_greedy, GreedyBySeed, "two greedy runs differ"),
    (checks.greedy_is_greedy, IgnoresMasksInLogprobs, "under top_k 1: off by"),
    (checks.a_resumed_request_draws_the_rest, RestartsItsNumbers, "resumed after"),
    (checks.logprobs_are_the_trainers, LogprobsAtTemperatureOne, r"at temperature 0\.7: off by"),
    (checks.new_weights_are_served_and_echoed, EchoesWithoutLoading, "against trainer"),
    (checks.new_weights_are_served_and_echoed, KeepsItsVersion, r"version 1 sampled as \[0\]"),
    (checks.new_weights_are_served_and_echoed, EchoesTheOldVersion, "sent version 1"),
    (checks.wrong_weights_are_not_echoed_as_right, CopiesTheChecksum, "not its own"),
    (checks.an_abort_returns_what_there_is, AbortsEverybody, "of another session"),
    (checks.an_abort_returns_what_there_is, AbortsNobody, "abort said 0"),
    (checks.pause_holds_new_requests, NeverPauses, "while the engine was paused"),
    (checks.updates_are_refused_while_requests_run, LoadsUnderRequests, "under a running request"),
    (checks.a_full_context_is_refused, TakesAnyPrompt, "a prompt of 64 tokens was taken"),
    (checks.a_full_context_is_refused, RunsOver, "50 tokens where 3 fit"),
]


def world(make, tmp_path):
    """A builder of the toy model, its trainer and the engine under test."""

    def build(ref, context):
        if ref.kind == "model":
            return ToyModel()
        return ToyTrainer(tmp_path) if ref.kind == "trainer" else make(context)

    return build


def test_a_good_engine_passes_every_check(trial, tmp_path):
    skips = (*engine_scores.CHECKS, *engine_memory.CHECKS)
    trial.passes(EngineSuite, CASE, builder=world(Good, tmp_path), skips=skips)


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_engine_is_caught(trial, tmp_path, check, make, told):
    trial.fails(check, CASE, told=told, builder=world(make, tmp_path))


def test_an_engine_that_can_be_stopped_only_once_is_caught(trial, tmp_path):
    class StopsOnce(Good):
        stopped = False

        async def stop(self):
            if self.stopped:
                raise RuntimeError("already stopped")
            self.stopped = True

    with pytest.raises(RuntimeError, match="already stopped"):
        trial(checks.stop_is_idempotent, CASE, builder=world(StopsOnce, tmp_path))


def test_every_check_catches_something():
    caught = {check for check, _, _ in BROKEN} | {checks.stop_is_idempotent}
    elsewhere = {*engine_scores.CHECKS, *engine_memory.CHECKS}
    assert caught == set(EngineSuite.checks) - elsewhere
