"""Each check of scoring catches an engine that scores wrongly.

The model here is one number, the log-odds of token 5 against all others.
"""

import asyncio
import json

import numpy as np
import pytest

from axisrl.errors import EngineFailure
from axisrl.plugins import EngineComponent
from axisrl.testing import CheckSkipped, EngineCase, EngineSuite
from axisrl.testing import engine_scores as checks
from axisrl.testing.fakes import CharTokenizer
from axisrl.testing.harness import Suite
from axisrl.types import GenerateResult, StepStats, WeightAck, WeightUpdate

CONTEXT = 64
SIZE = 11
CASE = EngineCase(
    use="toy/engine",
    model="toy/model",
    trainer="toy/trainer",
    services={"tokenizer": CharTokenizer()},
    max_context=CONTEXT,
)


class ScoreSuite(Suite):
    kind = "engine"
    checks = checks.CHECKS


class ToyModel:
    def fetch(self, cache):
        folder = cache / "toy"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps({"vocab_size": SIZE}))
        return folder


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
    bias = 1.0
    running = 0

    def __init__(self, context):
        pass

    async def start(self, model):
        pass

    async def generate(self, request):
        self.running += 1
        numbers, ids, logprobs = np.random.default_rng(request.seed), [], []
        for _ in range(request.sampling.max_tokens):
            await asyncio.sleep(0)
            logp = distribution(self.bias, request.sampling.temperature)
            ids.append(min(int(np.searchsorted(np.exp(logp).cumsum(), numbers.random())), SIZE - 1))
            logprobs.append(logp[ids[-1]])
        self.running -= 1
        return GenerateResult(
            ids=np.asarray(ids, np.int32),
            logprobs=np.asarray(logprobs, np.float32),
            versions=np.zeros(len(ids), np.int32),
            finish_reason="length",
        )

    async def score(self, ids, temperature):
        if len(ids) > CONTEXT:
            raise EngineFailure("no room")
        return distribution(self.bias, temperature)[ids[1:]]

    async def abort(self, session=None):
        return 0

    async def update_weights(self, update):
        self.bias = float(update.location)
        return WeightAck(version=update.version, checksum=update.checksum)

    async def pause(self):
        pass

    async def resume(self):
        pass

    async def stop(self):
        pass


class ScoresTheFirstToken(Good):
    async def score(self, ids, temperature):
        scores = await super().score(ids, temperature)
        return np.append(np.float32(0), scores)


class ScoresAtTemperatureOne(Good):
    async def score(self, ids, temperature):
        return await super().score(ids, 1.0)


class ScoresTheModelItStartedWith(Good):
    async def score(self, ids, temperature):
        return distribution(1.0, temperature)[ids[1:]].astype(np.float32)


class ScoringDisturbsRequests(Good):
    async def score(self, ids, temperature):
        self.bias += 5.0
        return await super().score(ids, temperature)


class RequestsDisturbScores(Good):
    async def score(self, ids, temperature):
        return await super().score(ids, temperature) - np.float32(self.running)


class ScoresAnything(Good):
    async def score(self, ids, temperature):
        return (await super().score(ids[:CONTEXT], temperature))[:CONTEXT]


BROKEN = [
    (checks.scores_are_the_trainers, ScoresTheFirstToken, "tokens scored as"),
    (checks.scores_are_the_trainers, ScoresAtTemperatureOne, r"at temperature 0\.7: off by"),
    (checks.scores_are_the_trainers, ScoresTheModelItStartedWith, r"at temperature 1\.0: off by"),
    (checks.scoring_leaves_requests_alone, ScoringDisturbsRequests, "beside scores"),
    (checks.scoring_leaves_requests_alone, RequestsDisturbScores, "scores beside requests: off"),
    (checks.texts_that_do_not_fit_are_not_scored, ScoresAnything, "65 tokens were scored"),
]


def world(make):
    """A builder of the toy model, its trainer and the engine under test."""
    made = {"model": lambda context: ToyModel(), "trainer": lambda context: ToyTrainer()}
    return lambda ref, context: made.get(ref.kind, make)(context)


def test_a_good_scorer_passes_every_check(trial):
    trial.passes(ScoreSuite, CASE, builder=world(Good))


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_scorer_is_caught(trial, check, make, told):
    trial.fails(check, CASE, told=told, builder=world(make))


class ScoresNothing(Good):
    score = None

    def __getattribute__(self, name):
        if name == "score":
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_an_engine_that_does_not_score_is_not_asked_to(trial):
    with pytest.raises(CheckSkipped, match="does not score"):
        trial(checks.scores_are_the_trainers, CASE, builder=world(ScoresNothing))


def test_an_engine_that_says_it_scores_and_cannot_is_caught(trial):
    says = EngineComponent(name="engine", target="toy:Engine", scores=True)
    trial.fails(
        checks.scores_are_the_trainers,
        CASE,
        told="no method score",
        says=says,
        builder=world(ScoresNothing),
    )


def test_every_check_catches_something_and_is_in_the_suite():
    assert {check for check, _, _ in BROKEN} == set(checks.CHECKS) <= set(EngineSuite.checks)
