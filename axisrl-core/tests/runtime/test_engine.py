"""Tests of axisrl.runtime.engine."""

import asyncio

import pytest

from axisrl.errors import ActorGone
from axisrl.runtime.engine import EngineActor


class Serving:
    """The methods of an engine; none of them is called here."""

    start = generate = abort = update_weights = pause = resume = stop = print


class Watched(Serving):
    async def stay(self):
        raise ActorGone("the server ended")


def actor_of(engine) -> EngineActor:
    actor = EngineActor.__new__(EngineActor)
    actor._engine = engine
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
