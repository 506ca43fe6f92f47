"""What a :class:`axisrl.protocols.RolloutEngine` promises, on a small model and with the trainer
whose weights it takes. It does not measure speed. Scoring is in
:mod:`axisrl.testing.engine_scores`, memory hand-over in :mod:`axisrl.testing.engine_memory`."""

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np

from axisrl.errors import EngineFailure, WeightSyncError
from axisrl.protocols.engine import RolloutEngine
from axisrl.testing import engine_memory, engine_scores
from axisrl.testing.engine_requests import (
    LONG,
    EngineSubject,
    generate,
    generate_batch,
    let_start,
    require_agreement,
    require_same_draw,
    served_by,
    started_trainer,
    train_once,
)
from axisrl.testing.harness import CheckFailed, CheckSkipped, Suite, require, require_close
from axisrl.testing.sequences import prompts, vocabulary
from axisrl.types import SamplingParams

_PAUSE_S = 0.05


async def results_are_whole(subject: EngineSubject) -> None:
    """Ids in the vocabulary, one finite log-probability of at most 0 and one version a token."""
    async with served_by(subject) as served:
        size = vocabulary(served.model)
        for result in await generate_batch(served, SamplingParams(max_tokens=6)):
            count = len(result.ids)
            require(1 <= count <= 6, f"{count} tokens for max_tokens 6")
            require(
                result.ids.min() >= 0 and result.ids.max() < size, "an id outside the vocabulary"
            )
            require(
                result.logprobs.shape == result.versions.shape == result.ids.shape,
                f"{result.logprobs.shape} log-probabilities and {result.versions.shape} versions "
                f"for {count} ids",
            )
            require(
                bool(np.isfinite(result.logprobs).all() and (result.logprobs <= 0).all()),
                f"log-probabilities {result.logprobs.tolist()}",
            )
            require(not result.versions.any(), f"versions {result.versions.tolist()} at start")


async def finish_reasons_are_true(subject: EngineSubject) -> None:
    """``length`` at ``max_tokens``, ``stop`` at a stop token, which stays in the result."""
    async with served_by(subject) as served:
        for result in await generate_batch(served, SamplingParams(max_tokens=5)):
            if result.finish_reason == "length":
                require(len(result.ids) == 5, f"finish length after {len(result.ids)} of 5 tokens")
            else:
                last = int(result.ids[-1])
                require(
                    result.finish_reason == "stop" and last in served.tokenizer.stop_ids,
                    f"finish {result.finish_reason} at token {last}",
                )
        anything = tuple(range(vocabulary(served.model)))
        for result in await generate_batch(
            served, SamplingParams(max_tokens=5, stop_token_ids=anything)
        ):
            told = (len(result.ids), result.finish_reason)
            require(told == (1, "stop"), f"{told} where every token is a stop token")


async def stop_strings_end_a_request(subject: EngineSubject) -> None:
    """At the first token whose text completes one; the tokens stay in the result."""
    async with served_by(subject) as served:
        prompt = prompts(served.model, 1)[0]
        whole = await generate(served, prompt, SamplingParams(max_tokens=8))
        ids = whole.ids.tolist()
        texts = [served.tokenizer.decode(ids[:n], skip_special=False) for n in range(len(ids) + 1)]
        text = texts[min(3, len(texts) - 1)]
        if not text:
            raise CheckSkipped("the model's first tokens have no text")
        ends = next(n for n, known in enumerate(texts) if text in known)
        stopped = await generate(served, prompt, SamplingParams(max_tokens=8, stop=(text,)))
        require(
            stopped.finish_reason == "stop" and np.array_equal(stopped.ids, whole.ids[:ends]),
            f"stop string {text!r}: {stopped.ids.tolist()} ({stopped.finish_reason}) of "
            f"{whole.ids.tolist()}, expected the first {ends}",
        )


async def seeds_decide_what_is_drawn(subject: EngineSubject) -> None:
    """Same seed, same tokens; eight seeds do not all agree."""
    sampling = SamplingParams(max_tokens=6)
    async with served_by(subject) as served:
        prompt = prompts(served.model, 1)[0]
        drawn = [await generate(served, prompt, sampling, seed=seed) for seed in range(8)]
        again = [await generate(served, prompt, sampling, seed=seed) for seed in range(8)]
    for seed, (first, second) in enumerate(zip(drawn, again, strict=True)):
        require(
            np.array_equal(first.ids, second.ids),
            f"seed {seed} drew {first.ids.tolist()} and then {second.ids.tolist()}",
        )
    require(len({tuple(result.ids.tolist()) for result in drawn}) > 1, "eight seeds drew the same")


async def company_changes_nothing(subject: EngineSubject) -> None:
    """A request among others draws what it draws alone."""
    async with served_by(subject) as served:
        sampling = SamplingParams(max_tokens=6)
        together = await generate_batch(served, sampling)
        for number, prompt in enumerate(prompts(served.model, len(together))):
            alone = await generate(served, prompt, sampling, seed=number)
            require_same_draw(f"request {number} alone", alone, together[number], subject)


async def greedy_is_greedy(subject: EngineSubject) -> None:
    """Temperature 0 ignores the seed; ``top_k`` 1 draws the same, with certainty."""
    async with served_by(subject) as served:
        prompt = prompts(served.model, 1)[0]
        greedy = SamplingParams(temperature=0.0, max_tokens=6)
        first = await generate(served, prompt, greedy, seed=1)
        second = await generate(served, prompt, greedy, seed=2)
        top = await generate(served, prompt, SamplingParams(top_k=1, max_tokens=6), seed=3)
    require(np.array_equal(first.ids, second.ids), "two greedy runs differ")
    require(np.array_equal(first.ids, top.ids), "top_k 1 differs from temperature 0")
    what = "log-probabilities under top_k 1"
    require_close(top.logprobs, np.zeros(len(top.ids)), atol=subject.case.tolerance, what=what)


async def a_resumed_request_draws_the_rest(subject: EngineSubject) -> None:
    """Prompt, first tokens and ``sampled_before`` give what the whole request gave after them;
    ``max_tokens`` counts both."""
    async with served_by(subject) as served:
        prompt = prompts(served.model, 1)[0]
        sampling = SamplingParams(max_tokens=8)
        whole = await generate(served, prompt, sampling, seed=5)
        cut = len(whole.ids) // 2
        if not cut:
            raise CheckSkipped("the whole request is a single token")
        longer = np.concatenate([prompt, whole.ids[:cut]])
        rest = await generate(served, longer, sampling, seed=5, sampled_before=cut)
        want = dataclasses.replace(whole, ids=whole.ids[cut:], logprobs=whole.logprobs[cut:])
        require_same_draw(f"resumed after {cut} tokens", rest, want, subject)


async def logprobs_are_the_trainers(subject: EngineSubject) -> None:
    """Index by index, at temperatures 1.0, 0.7 and 1.3, on packed rows."""
    async with served_by(subject) as served:
        trainer = started_trainer(subject, served.model)
        try:
            for temperature in (1.0, 0.7, 1.3):
                await require_agreement(subject, served, trainer, temperature)
        finally:
            trainer.stop()


async def new_weights_are_served_and_echoed(subject: EngineSubject) -> None:
    """After an update: version and checksum as sent, log-probabilities the trainer's new ones, no
    cached prefix of the old weights, versions that only rise."""
    async with served_by(subject) as served:
        trainer = started_trainer(subject, served.model)
        try:
            old = await require_agreement(subject, served, trainer, 1.0)
            for version in (1, 2):
                train_once(trainer, served, old)
                update = trainer.weight_update(version)
                ack = await served.engine.update_weights(update)
                require(
                    (ack.version, ack.checksum) == (version, update.checksum),
                    f"sent version {version} with {update.checksum}, echoed {ack}",
                )
                new = await require_agreement(subject, served, trainer, 1.0)
                versions = sorted({int(v) for result in new for v in result.versions})
                require(versions == [version], f"version {version} sampled as {versions}")
        finally:
            trainer.stop()


async def wrong_weights_are_not_echoed_as_right(subject: EngineSubject) -> None:
    """The checksum is of what is served, not a copy of what was announced."""
    async with served_by(subject) as served:
        trainer = started_trainer(subject, served.model)
        try:
            update = dataclasses.replace(trainer.weight_update(1), checksum="0" * 32)
            try:
                ack = await served.engine.update_weights(update)
            except WeightSyncError:
                return
            require(ack.checksum != update.checksum, "it echoed a checksum that is not its own")
        finally:
            trainer.stop()


async def an_abort_returns_what_there_is(subject: EngineSubject) -> None:
    """The requests of one session end with ``abort``; the others go on."""
    async with served_by(subject) as served:
        running = [
            asyncio.ensure_future(generate(served, prompt, LONG, seed=n, session=name))
            for n, (prompt, name) in enumerate(
                zip(prompts(served.model, 4), ("a", "a", "b", "b"), strict=True)
            )
        ]
        await let_start()
        count = await served.engine.abort("a")
        first = await asyncio.gather(*running[:2])
        aborted = [result.finish_reason for result in first].count("abort")
        require(count == aborted >= 1, f"abort said {count}, {aborted} requests were aborted")
        ended = [task.result().finish_reason for task in running[2:] if task.done()]
        require("abort" not in ended, "requests of another session were aborted too")
        count = await served.engine.abort()
        rest = await asyncio.gather(*running[2:])
        aborted = [result.finish_reason for result in rest].count("abort")
        require(count == aborted >= 1, f"abort of all said {count}, {aborted} were aborted")
        for result in (*first, *rest):
            require(
                len(result.ids) == len(result.logprobs) == len(result.versions),
                "an aborted result has arrays of unequal length",
            )


async def pause_holds_new_requests(subject: EngineSubject) -> None:
    """Until ``resume``; pausing twice is pausing."""
    async with served_by(subject) as served:
        await served.engine.pause()
        await served.engine.pause()
        prompt = prompts(served.model, 1)[0]
        held = asyncio.ensure_future(generate(served, prompt, SamplingParams(max_tokens=2)))
        done, _ = await asyncio.wait([held], timeout=_PAUSE_S)
        require(not done, "a request was answered while the engine was paused")
        await served.engine.resume()
        result = await held
        require(len(result.ids) >= 1, "the held request came back empty after resume")


async def updates_are_refused_while_requests_run(subject: EngineSubject) -> None:
    """``WeightSyncError``, and the running request is not harmed."""
    async with served_by(subject) as served:
        trainer = started_trainer(subject, served.model)
        update = trainer.weight_update(1)
        running = asyncio.ensure_future(generate(served, prompts(served.model, 1)[0], LONG))
        await let_start()
        refused = False
        try:
            await served.engine.update_weights(update)
        except WeightSyncError:
            refused = True
        finally:
            await served.engine.abort()
            result = await running
            trainer.stop()
    require(refused, "new weights were loaded under a running request")
    require(not result.versions.any(), f"it went on with versions {result.versions.tolist()}")


async def a_full_context_is_refused(subject: EngineSubject) -> None:
    """``EngineFailure`` for a prompt that leaves no room; one near the limit is cut."""
    limit = subject.case.max_context
    if not limit:
        raise CheckSkipped("the case names no max_context")
    async with served_by(subject) as served:
        size = vocabulary(served.model)
        near = (np.arange(limit - 3) % size).astype(np.int32)
        result = await generate(served, near, SamplingParams(max_tokens=50))
        require(1 <= len(result.ids) <= 3, f"{len(result.ids)} tokens where 3 fit")
        full = (np.arange(limit) % size).astype(np.int32)
        try:
            await generate(served, full, SamplingParams(max_tokens=50))
        except EngineFailure:
            return
        raise CheckFailed(f"a prompt of {limit} tokens was taken where {limit} is the limit")


async def stop_is_idempotent(subject: EngineSubject) -> None:
    """Twice after a start, and once without one."""
    never_started: RolloutEngine = subject.build()
    await never_started.stop()
    async with served_by(subject) as served:
        await served.engine.stop()


class EngineSuite(Suite):
    """Tries a rollout engine with ``EngineCase``s."""

    kind = "engine"
    checks = (
        results_are_whole,
        finish_reasons_are_true,
        stop_strings_end_a_request,
        seeds_decide_what_is_drawn,
        company_changes_nothing,
        greedy_is_greedy,
        a_resumed_request_draws_the_rest,
        logprobs_are_the_trainers,
        new_weights_are_served_and_echoed,
        wrong_weights_are_not_echoed_as_right,
        an_abort_returns_what_there_is,
        pause_holds_new_requests,
        updates_are_refused_while_requests_run,
        a_full_context_is_refused,
        stop_is_idempotent,
        *engine_scores.CHECKS,
        *engine_memory.CHECKS,
    )
