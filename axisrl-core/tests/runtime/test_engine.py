"""Tests of axisrl.runtime.engine."""

import asyncio
from types import SimpleNamespace

import pytest

from axisrl.errors import ActorGone
from axisrl.runtime.busy import BusyClock
from axisrl.runtime.engine import EngineActor
from axisrl.runtime.gate import Gate


class Serving:
    """The methods of an engine; none of them is called here."""

    start = generate = abort = update_weights = pause = resume = stop = print


class Watched(Serving):
    async def stay(self):
        raise ActorGone("the server ended")


class Sampling(Serving):
    """Answers with results of these numbers of tokens and passes."""

    def __init__(self, *sizes):
        self.sizes = list(sizes)

    async def generate(self, request):
        tokens, passes = self.sizes.pop(0)
        return SimpleNamespace(ids=range(tokens), passes=passes)


def actor_of(engine) -> EngineActor:
    actor = EngineActor.__new__(EngineActor)
    actor._engine, actor._gate, actor._clock = engine, Gate(), BusyClock("generate")
    actor._tokens = actor._passes = 0
    return actor


def test_an_engine_whose_server_is_gone_is_an_actor_that_is_gone():
    with pytest.raises(ActorGone, match="the server ended"):
        asyncio.run(actor_of(Watched()).stay())


def test_an_engine_that_serves_by_itself_stays_with_its_process():
    async def staying():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await actor_of(Serving()).stay()

    asyncio.run(staying())


def test_tokens_are_counted_where_the_engine_tells_in_how_many_passes_they_came():
    async def asked():
        actor = actor_of(Sampling((6, 3), (5, 0), (4, 2)))
        for _ in range(3):
            await actor.generate(None)
        return await actor.activity()

    told = asyncio.run(asked())
    assert (told.tokens, told.passes) == (10, 5)
