"""What a :class:`axisrl.protocols.OffloadingEngine` promises beside an engine's other promises
(:mod:`axisrl.testing.engine`). It does not measure memory: that is for a test on the device. An
engine that hands nothing over is not asked to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from axisrl.errors import EngineFailure, WeightSyncError
from axisrl.plugins.components import EngineComponent
from axisrl.protocols import EnginePart, OffloadingEngine
from axisrl.testing.engine_requests import (
    LONG,
    EngineSubject,
    Served,
    generate,
    generate_batch,
    let_start,
    require_agreement,
    require_same_draw,
    served_by,
    started_trainer,
    train_once,
)
from axisrl.testing.harness import CheckFailed, CheckSkipped, require
from axisrl.testing.sequences import prompts
from axisrl.types import SamplingParams

_ALL: tuple[EnginePart, ...] = ("weights", "kv_cache")
_SHORT = SamplingParams(max_tokens=6)
_HELD_S = 0.05


async def memory_that_comes_back_changes_nothing(subject: EngineSubject) -> None:
    """Requests draw what they drew, from weights of the same version, however often it goes; twice
    off or back is once; a part that goes alone comes back alone."""
    async with _offloading(subject) as (served, engine):
        want = await generate_batch(served, _SHORT)
        for parts in (_ALL, _ALL, _ALL[:1], _ALL[1:]):
            await engine.offload(parts)
            await engine.offload(parts)
            await engine.reload(parts)
            await engine.reload(parts)
            for number, result in enumerate(await generate_batch(served, _SHORT)):
                what = f"request {number} after {' and '.join(parts)} came back"
                require_same_draw(what, result, want[number], subject)
                versions = result.versions.tolist()
                require(not any(versions), f"{what}: versions {versions}")


async def requests_wait_while_memory_is_away(subject: EngineSubject) -> None:
    """Until all of it is back; an abort ends one that waits."""
    async with _offloading(subject) as (served, engine):
        prompt = prompts(served.model, 1)[0]
        await engine.offload(_ALL)
        ended = asyncio.ensure_future(generate(served, prompt, _SHORT, seed=1, session="ended"))
        held = asyncio.ensure_future(generate(served, prompt, _SHORT, seed=2))
        await let_start()
        await engine.abort("ended")
        require((await ended).finish_reason == "abort", "a waiting request was not aborted")
        for part in _ALL:
            done, _ = await asyncio.wait([held], timeout=_HELD_S)
            require(not done, f"a request was answered before {part} was back")
            await engine.reload([part])
        require(len((await held).ids) >= 1, "the request that waited came back empty")


async def new_weights_come_before_the_cache(subject: EngineSubject) -> None:
    """An update is taken with the weights alone back, and what is served then is the trainer's."""
    async with _offloading(subject) as (served, engine):
        trainer = started_trainer(subject, served.model)
        try:
            for version in (1, 2):
                train_once(trainer, served, await generate_batch(served, _SHORT))
                update = trainer.weight_update(version)
                await engine.offload(_ALL)
                await engine.reload(["weights"])
                ack = await engine.update_weights(update)
                sent = (version, update.checksum)
                require((ack.version, ack.checksum) == sent, f"sent {sent}, echoed {ack}")
                await engine.reload(["kv_cache"])
                await require_agreement(subject, served, trainer, 1.0)
                await engine.offload(_ALL)
                await engine.reload(_ALL)
                await require_agreement(subject, served, trainer, 1.0)
        finally:
            trainer.stop()


async def weights_that_are_away_take_no_update(subject: EngineSubject) -> None:
    """``WeightSyncError``; once they are back it is taken."""
    async with _offloading(subject) as (served, engine):
        trainer = started_trainer(subject, served.model)
        try:
            update = trainer.weight_update(1)
            await engine.offload(_ALL)
            try:
                await engine.update_weights(update)
            except WeightSyncError:
                pass
            else:
                raise CheckFailed("an update was taken while the weights were away")
            await engine.reload(_ALL)
            ack = await engine.update_weights(update)
            require(ack.checksum == update.checksum, f"sent {update.checksum}, echoed {ack}")
        finally:
            trainer.stop()


async def memory_in_use_is_not_handed_over(subject: EngineSubject) -> None:
    """``EngineFailure`` while requests run, and they are not harmed."""
    async with _offloading(subject) as (served, engine):
        running = asyncio.ensure_future(generate(served, prompts(served.model, 1)[0], LONG))
        await let_start()
        refused = False
        try:
            await engine.offload(_ALL)
        except EngineFailure:
            refused = True
        finally:
            await engine.reload(_ALL)
            await engine.abort()
            result = await running
    require(refused, "memory was handed over under a running request")
    require(
        len(result.ids) == len(result.logprobs), "the running request lost a part of its result"
    )


@asynccontextmanager
async def _offloading(subject: EngineSubject) -> AsyncIterator[tuple[Served, OffloadingEngine]]:
    """The started engine, where it says that it offloads. Fails when it says so and cannot."""
    async with served_by(subject) as served:
        says = subject.descriptor
        if isinstance(served.engine, OffloadingEngine):
            yield served, served.engine
            return
        require(
            not (isinstance(says, EngineComponent) and says.offloads),
            "the component says offloads=True and has no offload and reload",
        )
        raise CheckSkipped("it does not hand memory over")


CHECKS = (
    memory_that_comes_back_changes_nothing,
    requests_wait_while_memory_is_away,
    new_weights_come_before_the_cache,
    weights_that_are_away_take_no_update,
    memory_in_use_is_not_handed_over,
)
