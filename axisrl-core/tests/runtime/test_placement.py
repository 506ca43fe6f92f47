"""One set of actors, two placements: what a caller sees must not depend on where an actor lives."""

import asyncio
import os
import threading

import pytest

from axisrl.config.schema import PlacementConfig
from axisrl.errors import ConfigError, EngineFailure, RunFailed
from axisrl.runtime.actors import Actor, ActorBoot
from axisrl.runtime.placement import InlinePlacement, RayPlacement
from axisrl.types import ModelSpec


class Bare(Actor):
    """An actor without plugins, so that these tests are about placement alone."""

    def __init__(self, boot, store=None, *peers):
        self.boot, self.peers, self.calls = boot, peers, 0
        if boot.rank < 0:
            raise EngineFailure("no such rank", fix="count from 0")

    def where(self):
        self.calls += 1
        return os.getpid(), threading.current_thread().name

    async def count(self):
        return self.calls

    def fail(self):
        raise EngineFailure("lost it", fix="look for it")

    async def ask_peer(self):
        return await self.peers[0].call("count")

    def die(self):
        os._exit(1)


@pytest.fixture
def boot(stage, model_folder, tmp_path):
    loaded, manager = stage.load()
    return ActorBoot(
        role="rollout",
        rank=0,
        manifest=manager.manifest(),
        config=loaded.config,
        run_dir=tmp_path,
        model=ModelSpec(name="m", path=model_folder),
    )


@pytest.fixture(params=["inline", "ray"])
def placement(request):
    if request.param == "inline":
        return InlinePlacement(store=None)
    request.getfixturevalue("local_ray")
    return RayPlacement(PlacementConfig(kind="ray"))


def using(placement, work):
    async def whole():
        try:
            return await work()
        finally:
            await placement.close()

    return asyncio.run(whole())


def test_an_actor_keeps_its_state_between_calls(placement, boot):
    async def work():
        actor = await placement.spawn(Bare, boot)
        await actor.call("where")
        await actor.call("where")
        return await actor.call("count")

    assert using(placement, work) == 2


def test_actors_call_each_other_through_handles(placement, boot):
    async def work():
        first = await placement.spawn(Bare, boot)
        second = await placement.spawn(Bare, boot, first)
        await first.call("where")
        return await second.call("ask_peer")

    assert using(placement, work) == 1


def test_an_actors_exception_arrives_as_itself(placement, boot):
    async def work():
        actor = await placement.spawn(Bare, boot)
        await actor.call("fail")

    with pytest.raises(EngineFailure) as caught:
        using(placement, work)
    assert (caught.value.message, caught.value.fix) == ("lost it", "look for it")


def test_a_constructors_exception_arrives_as_itself(placement, boot):
    import dataclasses

    async def work():
        await placement.spawn(Bare, dataclasses.replace(boot, rank=-1))

    with pytest.raises(EngineFailure, match="no such rank"):
        using(placement, work)


def test_plain_methods_of_an_inline_actor_run_in_one_thread_of_its_own(boot):
    placement = InlinePlacement(store=None)

    async def work():
        actor = await placement.spawn(Bare, boot)
        return [await actor.call("where") for _ in range(3)]

    places = using(placement, work)
    assert len(set(places)) == 1
    assert places[0][1] != threading.current_thread().name


def test_a_dead_ray_actor_is_a_failed_run_that_names_it(local_ray, boot):
    placement = RayPlacement(PlacementConfig(kind="ray"))

    async def work():
        actor = await placement.spawn(Bare, boot)
        await actor.call("die")

    with pytest.raises(RunFailed, match="rollout 0 actor"):
        using(placement, work)


def test_more_actors_than_the_cluster_holds_is_an_error_and_not_a_wait(local_ray):
    placement = RayPlacement(PlacementConfig(kind="ray", cpus_per_actor=0.5))
    placement.require([0.0] * 4)
    with pytest.raises(ConfigError, match=r"needs 2.5 CPU for 5 actors, the whole cluster has 2"):
        placement.require([0.0] * 5)
    with pytest.raises(ConfigError, match="needs 1 GPU"):
        placement.require([1.0])
