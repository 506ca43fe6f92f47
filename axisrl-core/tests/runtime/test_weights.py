import asyncio

import pytest

from axisrl.errors import ActorGone, Irreplaceable, WeightSyncError
from axisrl.runtime.supervisor import Post
from axisrl.runtime.weights import Engines, sync_weights
from axisrl.types import WeightAck, WeightUpdate


class Trainer:
    def __init__(self, transport="disk"):
        self.transport = transport

    async def call(self, method, version):
        assert method == "weight_update"
        return WeightUpdate(
            version=version, transport=self.transport, location="", tensors=(), checksum="abc"
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


class Gone:
    async def call(self, method, update):
        raise ActorGone("the actor is gone")


def test_a_frozen_model_that_is_gone_is_a_loss():
    with pytest.raises(ActorGone):
        sync(Engine(), Gone())


def test_an_engine_that_died_is_waited_for_and_its_successor_gets_the_weights():
    successor = Engine()

    async def work():
        post = Post("engine 0", Gone())
        sync = asyncio.ensure_future(sync_weights(Trainer(), {"engine rank 0": post}, (2, 3), 5.0))
        await asyncio.sleep(0)
        post.fill(successor)
        await sync

    asyncio.run(work())
    assert [update.version for update in successor.updates] == [3]


def synced_then_caught_up(transport):
    """What an engine is sent that is started after the others were synced."""
    late = Engine()

    async def work():
        engines = Engines({"engine rank 0": Post("engine 0", Engine())}, 5.0)
        await engines.catch_up("engine rank 0", late)
        assert late.updates == []  # nothing was synced yet: it holds what the others hold
        await engines.sync(Trainer(transport), (2, 3))
        await engines.catch_up("engine rank 0", late)

    asyncio.run(work())
    return [update.version for update in late.updates]


@pytest.mark.parametrize("transport", ["shared_memory", "disk", "nccl"])
def test_a_new_engine_catches_up_with_what_the_others_serve(transport):
    assert synced_then_caught_up(transport) == [3]


def test_weights_that_were_kept_nowhere_cannot_be_caught_up_with():
    with pytest.raises(Irreplaceable, match="version 3 was sent by cuda_ipc"):
        synced_then_caught_up("cuda_ipc")


class Refusing:
    async def call(self, method, update):
        raise WeightSyncError("offer 7 is not held any more", fix="see there")


def test_weights_that_are_not_held_any_more_cannot_be_caught_up_with():
    async def work():
        engines = Engines({"engine rank 0": Post("engine 0", Engine())}, 5.0)
        await engines.sync(Trainer("nccl"), (2, 3))
        expected = r"sent by nccl.*offer 7 is not held any more"
        with pytest.raises(Irreplaceable, match=expected) as refused:
            await engines.catch_up("engine rank 0", Refusing())
        assert refused.value.fix == "see there"

    asyncio.run(work())


class Overtaken(Engine):
    """Holds only what is on offer now; ``before`` happens while it asks for the first time."""

    def __init__(self, offered, before):
        super().__init__()
        self.offered, self.before = offered, before

    async def call(self, method, update):
        if self.before is not None:
            before, self.before = self.before, None
            await before()
        if update.version != self.offered[-1]:
            raise WeightSyncError(f"offer {update.version} is not held any more", fix="see there")
        return await super().call(method, update)


def test_an_engine_that_asks_while_newer_weights_are_offered_catches_up_with_those():
    """The offer it was told of ends when the next is being made, which takes a while."""

    offered = []

    class Slow(Trainer):
        async def call(self, method, version):
            offered.append(version)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return await super().call(method, version)

    async def work():
        trainer = Slow("nccl")
        engines = Engines({"engine rank 0": Post("engine 0", Engine())}, 5.0)
        await engines.sync(trainer, (2, 3))
        syncs = []

        async def begin():
            syncs.append(asyncio.ensure_future(engines.sync(trainer, (3, 4))))
            await asyncio.sleep(0)

        late = Overtaken(offered, begin)
        await engines.catch_up("engine rank 1", late)
        await syncs[0]
        return [update.version for update in late.updates]

    assert asyncio.run(work()) == [4]


def test_an_engine_that_refuses_is_named_with_both_versions():
    expected = "rank 0, on version 2, did not take version 3: offer 7 is not held any more"
    with pytest.raises(WeightSyncError, match=expected) as refused:
        sync(Refusing(), Engine())
    assert refused.value.fix == "see there"


def test_receivers_are_told_how_many_they_are_and_one_that_catches_up_is_alone():
    late, there = Engine(), [Engine(), Engine()]

    async def work():
        posts = {f"engine rank {n}": Post(f"engine {n}", each) for n, each in enumerate(there)}
        engines = Engines(posts, 5.0)
        await engines.sync(Trainer("nccl"), (2, 3))
        await engines.catch_up("engine rank 0", late)

    asyncio.run(work())
    assert [engine.updates[0].receivers for engine in there] == [2, 2]
    assert late.updates[0].receivers == 1


def test_an_engine_that_starts_during_a_sync_catches_up_with_what_is_sent_in_it():
    late, slow = Engine(), Engine(delay=0.05)

    async def work():
        engines = Engines({"engine rank 0": Post("engine 0", slow)}, 5.0)
        sync = asyncio.ensure_future(engines.sync(Trainer("nccl"), (2, 3)))
        for _ in range(3):
            await asyncio.sleep(0)
        await engines.catch_up("engine rank 1", late)
        assert not sync.done()
        await sync

    asyncio.run(work())
    assert [update.version for update in late.updates] == [3]
