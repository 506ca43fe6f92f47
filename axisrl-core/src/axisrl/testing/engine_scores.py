"""What a :class:`axisrl.protocols.ScoringEngine` promises beside an engine's other promises
(:mod:`axisrl.testing.engine`). An engine that does not score is not asked to."""

from __future__ import annotations

import asyncio

import numpy as np

from axisrl.errors import EngineFailure
from axisrl.plugins.components import EngineComponent
from axisrl.protocols.engine import ScoringEngine
from axisrl.protocols.trainer import TrainerBackend
from axisrl.testing.engine_requests import (
    EngineSubject,
    Served,
    generate_batch,
    let_start,
    require_same_draw,
    served_by,
    started_trainer,
    train_once,
)
from axisrl.testing.harness import CheckFailed, CheckSkipped, require, require_close
from axisrl.testing.sequences import packed, prompts, random_samples, trained, vocabulary
from axisrl.types import FloatArray, SamplingParams


async def scores_are_the_trainers(subject: EngineSubject) -> None:
    """Of given tokens, at temperatures 1.0, 0.7 and 1.3, before and after new weights."""
    async with served_by(subject) as served:
        engine = _scoring(subject, served)
        trainer = started_trainer(subject, served.model)
        try:
            for temperature in (1.0, 0.7, 1.3):
                await _require_scores(subject, served, engine, trainer, temperature)
            train_once(trainer, served, await generate_batch(served, SamplingParams(max_tokens=6)))
            await engine.update_weights(trainer.weight_update(1))
            await _require_scores(subject, served, engine, trainer, 1.0)
        finally:
            trainer.stop()


async def scoring_leaves_requests_alone(subject: EngineSubject) -> None:
    """Requests that run meanwhile draw what they draw alone, and the scores are the same too."""
    async with served_by(subject) as served:
        engine = _scoring(subject, served)
        sampling = SamplingParams(max_tokens=6)
        texts = prompts(served.model, 4, seed=1)
        want = await generate_batch(served, sampling)
        scores = [await engine.score(text, 1.0) for text in texts]
        running = asyncio.ensure_future(generate_batch(served, sampling))
        await let_start()
        meanwhile = await asyncio.gather(*(engine.score(text, 1.0) for text in texts))
        for number, result in enumerate(await running):
            require_same_draw(f"request {number} beside scores", result, want[number], subject)
    for alone, beside in zip(scores, meanwhile, strict=True):
        what = "scores beside requests"
        require_close(beside, alone, atol=subject.case.tolerance, what=what)


async def texts_that_do_not_fit_are_not_scored(subject: EngineSubject) -> None:
    """``EngineFailure`` above the context limit; at the limit there are scores."""
    limit = subject.case.max_context
    if not limit:
        raise CheckSkipped("the case names no max_context")
    async with served_by(subject) as served:
        engine = _scoring(subject, served)
        longest = (np.arange(limit + 1) % vocabulary(served.model)).astype(np.int32)
        scores = await engine.score(longest[:-1], 1.0)
        require(len(scores) == limit - 1, f"{len(scores)} scores for {limit} tokens")
        try:
            await engine.score(longest, 1.0)
        except EngineFailure:
            return
        raise CheckFailed(f"{limit + 1} tokens were scored where {limit} is the limit")


def _scoring(subject: EngineSubject, served: Served) -> ScoringEngine:
    """The engine, where it says that it scores. Fails when it says so and cannot."""
    says = subject.descriptor
    if isinstance(served.engine, ScoringEngine):
        return served.engine
    require(
        not (isinstance(says, EngineComponent) and says.scores),
        "the component says scores=True and has no method score",
    )
    raise CheckSkipped("it does not score")


async def _require_scores(
    subject: EngineSubject,
    served: Served,
    engine: ScoringEngine,
    trainer: TrainerBackend,
    temperature: float,
) -> None:
    """Score random texts, and hold the scores against the trainer's log-probabilities."""
    samples = random_samples(served.model, 4, temperature=temperature)
    batch = packed(samples)
    theirs: FloatArray = trained(batch, trainer.logprobs([batch])[0])
    texts = [np.append(sample.ids, sample.labels[-1:]).astype(np.int32) for sample in samples]
    scores = await asyncio.gather(*(engine.score(text, temperature) for text in texts))
    for text, found in zip(texts, scores, strict=True):
        told = (found.shape, str(found.dtype))
        require(told == ((len(text) - 1,), "float32"), f"{len(text)} tokens scored as {told}")
    ours = np.concatenate([f[s.loss_mask] for f, s in zip(scores, samples, strict=True)])
    what = f"scores against trainer at temperature {temperature}"
    require_close(ours, theirs, atol=subject.case.tolerance, what=what)


CHECKS = (
    scores_are_the_trainers,
    scoring_leaves_requests_alone,
    texts_that_do_not_fit_are_not_scored,
)
