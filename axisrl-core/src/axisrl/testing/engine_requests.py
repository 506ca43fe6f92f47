"""Talks to an engine on a small model: requests, and the comparison with a trainer. The promises
themselves are in :mod:`axisrl.testing.engine`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import numpy as np

from axisrl.protocols.engine import RolloutEngine
from axisrl.protocols.trainer import TrainerBackend
from axisrl.runtime.batch import with_weights
from axisrl.runtime.chat import ChatTokenizer, load_tokenizer
from axisrl.testing.cases import EngineCase
from axisrl.testing.harness import Subject, require, require_close
from axisrl.testing.sequences import (
    PullLoss,
    model_spec,
    packed,
    prompts,
    sample_of,
    trained,
)
from axisrl.types import (
    FloatArray,
    GenerateRequest,
    GenerateResult,
    IntArray,
    ModelSpec,
    Sample,
    SamplingParams,
)

EngineSubject = Subject[EngineCase]
LONG = SamplingParams(max_tokens=200)
"""Of a request that is meant to be running still."""


class Served(NamedTuple):
    """A started engine and what it serves."""

    engine: RolloutEngine
    model: ModelSpec
    tokenizer: ChatTokenizer


@asynccontextmanager
async def served_by(subject: EngineSubject) -> AsyncIterator[Served]:
    """The case's engine on the case's model, stopped afterwards."""
    model = model_spec(subject)
    tokenizer = subject.case.services.get("tokenizer") or load_tokenizer(model.path)
    services = {**subject.case.services, "model": model, "tokenizer": tokenizer}
    engine: RolloutEngine = subject.build(subject.context(services=services))
    await engine.start(model)
    try:
        yield Served(engine, model, tokenizer)
    finally:
        await engine.stop()


def started_trainer(subject: EngineSubject, model: ModelSpec) -> TrainerBackend:
    """The trainer that goes with the engine, on the same model."""
    options: dict[str, Any] = dict(subject.case.trainer_options)
    trainer: TrainerBackend = subject.build_other("trainer", subject.case.trainer, **options)
    trainer.start(model, total_steps=4)
    return trainer


async def let_start() -> None:
    """Give requests that were just made two turns of the loop."""
    for _ in range(2):
        await asyncio.sleep(0)


async def generate(
    served: Served, prompt: IntArray, sampling: SamplingParams, **fields: Any
) -> GenerateResult:
    """One request; ``fields`` are further fields of it. Requests at once need different seeds."""
    seed = int(fields.pop("seed", 0))
    request = GenerateRequest(
        id=f"suite-{seed}", prompt_ids=prompt, sampling=sampling, seed=seed, **fields
    )
    return await served.engine.generate(request)


async def generate_batch(served: Served, sampling: SamplingParams) -> list[GenerateResult]:
    """Eight prompts at once; the i-th with seed i."""
    wanted = enumerate(prompts(served.model, 8))
    return await asyncio.gather(*(generate(served, p, sampling, seed=n) for n, p in wanted))


def require_same_draw(
    what: str, got: GenerateResult, want: GenerateResult, subject: EngineSubject
) -> None:
    """Same ids, and log-probabilities within the case's tolerance."""
    require(
        np.array_equal(got.ids, want.ids),
        f"{what}: drew {got.ids.tolist()} instead of {want.ids.tolist()}",
    )
    close = subject.case.tolerance
    require_close(got.logprobs, want.logprobs, atol=close, what=f"{what}: log-probabilities")


async def require_agreement(
    subject: EngineSubject, served: Served, trainer: TrainerBackend, temperature: float
) -> list[GenerateResult]:
    """Sample, and hold the engine's log-probabilities against the trainer's."""
    results = await generate_batch(served, SamplingParams(temperature=temperature, max_tokens=6))
    batch = packed(_samples(served, results, temperature))
    theirs: FloatArray = trained(batch, trainer.logprobs([batch])[0])
    ours = np.concatenate([result.logprobs for result in results])
    what = f"engine against trainer at temperature {temperature}"
    require_close(ours, theirs, atol=subject.case.tolerance, what=what)
    return results


def _samples(served: Served, results: Sequence[GenerateResult], temperature: float) -> list[Sample]:
    asked = zip(prompts(served.model, len(results)), results, strict=True)
    return [sample_of(p, result, n, temperature) for n, (p, result) in enumerate(asked)]


def train_once(trainer: TrainerBackend, served: Served, results: Sequence[GenerateResult]) -> None:
    """One step that must move the log-probabilities by more than the tolerance."""
    batch = packed(with_weights(_samples(served, results, 1.0), "token_mean", 0))
    before = trainer.logprobs([batch])[0]
    trainer.step([batch], PullLoss())
    moved = float(np.abs(trainer.logprobs([batch])[0] - before).max())
    require(
        moved > 1e-3,
        f"the trainer's step moved log-probabilities by {moved:.3g} only: raise its learning rate "
        "in the case's trainer_options",
    )
