import asyncio

import pytest

from axisrl.errors import RunFailed, WeightSyncError
from axisrl.runtime.weights import sync_weights
from axisrl.types import WeightAck, WeightUpdate


class Trainer:
    async def call(self, method, version):
        assert method == "weight_update"
        return WeightUpdate(
            version=version, transport="disk", location="", tensors=(), checksum="abc"
        )


class Engine:
    def __init__(self, ack=None, delay=0.0):
        self.ack, self.delay, self.updates = ack, delay, []

    async def call(self, method, update):
        await asyncio.sleep(self.delay)
        self.updates.append(update)
        return self.ack or WeightAck(version=update.version, checksum=update.checksum)


def sync(*engines, timeout=5.0):
    named = {f"engine rank {rank}": engine for rank, engine in enumerate(engines)}
    asyncio.run(sync_weights(Trainer(), named, (2, 3), timeout))


def test_every_engine_gets_the_same_update():
    engines = [Engine(), Engine()]
    sync(*engines)
    assert [engine.updates[0].version for engine in engines] == [3, 3]


def test_nothing_is_offered_where_nobody_receives():
    class Silent:
        async def call(self, method, version):
            raise AssertionError("asked for weights")

    asyncio.run(sync_weights(Silent(), {}, (2, 3), 5.0))


def test_an_engine_on_another_version_is_named_with_both_versions():
    with pytest.raises(WeightSyncError, match=r"engine rank 1.* answered with version 2 .* sent 3"):
        sync(Engine(), Engine(WeightAck(version=2, checksum="abc")))


def test_an_engine_with_damaged_weights_is_an_error():
    with pytest.raises(WeightSyncError, match="damaged what was sent"):
        sync(Engine(WeightAck(version=3, checksum="xyz")))


def test_a_silent_engine_fails_within_its_time_out():
    expected = r"rank 0, on version 2, did not confirm version 3 within 0.01 s"
    with pytest.raises(WeightSyncError, match=expected):
        sync(Engine(delay=60), timeout=0.01)


def test_a_dead_engine_is_named_with_its_rank_and_both_versions():
    class Dead:
        async def call(self, method, update):
            raise RunFailed("the engine 1 actor is gone", fix="see its log")

    expected = r"rank 1, on version 2, cannot take version 3: the engine 1 actor is gone"
    with pytest.raises(WeightSyncError, match=expected):
        sync(Engine(), Dead())
