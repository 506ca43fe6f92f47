"""One set of actors, two placements: what a caller sees must not depend on where an actor lives."""

import asyncio
import gc
import os
import signal
import threading

import pytest

from axisrl.config.schema import PlacementConfig
from axisrl.errors import ActorGone, ConfigError, EngineFailure, RunFailed
from axisrl.runtime.actors import Actor
from axisrl.runtime.placement import InlinePlacement, RayPlacement
from axisrl.runtime.places import RayPlaces, ResourceGroup
from axisrl.runtime.router import Router


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

    def place(self):
        from ray.util import get_current_placement_group

        group = get_current_placement_group()
        return group and group.id.hex()

    def frozen(self):
        return gc.get_freeze_count()

    def die(self):
        os._exit(1)


@pytest.fixture
def boot(stage):
    return stage.boot()


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


def test_a_ray_actors_collections_leave_out_what_it_was_built_of(local_ray, boot):
    placement = RayPlacement(PlacementConfig(kind="ray"))

    async def work():
        actor = await placement.spawn(Bare, boot)
        return await actor.call("frozen")

    assert using(placement, work) > 10_000


def test_the_requests_of_an_engine_that_died_are_answered_by_another(local_ray, boot):
    placement = RayPlacement(PlacementConfig(kind="ray"))

    async def work():
        engines = [await placement.spawn(Bare, boot) for _ in range(2)]
        router = Router("engine", engines)
        first = await router.call("where", session="s")
        os.kill(engines[0].pid, signal.SIGKILL)
        second = await router.call("where", session="s")
        return first != second, router.load

    assert using(placement, work) == (True, (0, 0))


def test_an_actor_that_is_waited_for_is_heard_of_as_soon_as_its_process_ends(local_ray, boot):
    placement = RayPlacement(PlacementConfig(kind="ray"))

    async def work():
        actor = await placement.spawn(Bare, boot)
        assert placement.actors["rollout 0"] is actor
        held = asyncio.ensure_future(actor.call("stay"))
        await actor.call("ping")
        os.kill(actor.pid, signal.SIGKILL)
        await held

    with pytest.raises(ActorGone, match="rollout 0 actor is gone"):
        using(placement, work)


def reserving(config, groups, wait_s=30.0):
    """What Ray's placement of ``config`` says about ``groups`` (name -> (actors, GPUs each))."""
    placement = RayPlacement(config)
    placement._places = RayPlaces(config, wait_s)
    wanted = {name: ResourceGroup(count=n, gpus=gpus) for name, (n, gpus) in groups.items()}
    using(placement, lambda: placement.reserve(wanted))


def test_a_group_that_the_cluster_cannot_hold_is_an_error_and_not_a_wait(local_ray):
    config = PlacementConfig(kind="ray", cpus_per_actor=0.5)
    reserving(config, {"rollout": (2, 0.0), "trainer": (2, 0.0), "idle": (0, 1.0)})
    with pytest.raises(ConfigError) as caught:
        reserving(config, {"rollout": (2, 0.0), "trainer": (3, 0.0)})
    assert caught.value.message == (
        "placement ray cannot hold resource group trainer, 3 actors of 0.5 CPU: "
        "the cluster has 1 CPU for it, 2 on the largest machine"
    )
    with pytest.raises(ConfigError, match=r"group rollout, 3 actors of 0.5 CPU, 1 GPU: .* 2 GPU"):
        reserving(config, {"rollout": (3, 1.0)})


def test_what_others_hold_is_waited_for_and_then_named(local_ray):
    config = PlacementConfig(kind="ray", cpus_per_actor=1.0)
    other, group = RayPlacement(config), {"theirs": ResourceGroup(count=1)}

    async def work():
        await other.reserve(group)
        with pytest.raises(ConfigError, match=r"group ours, .*: free within 0.2 s: 1 CPU, 2 GPU"):
            await asyncio.to_thread(reserving, config, {"ours": (2, 0.0)}, 0.2)

    using(other, work)
    reserving(config, {"ours": (2, 0.0)})  # given back


def test_actors_of_a_group_live_in_its_places(local_ray, boot):
    placement = RayPlacement(PlacementConfig(kind="ray", strategy="spread"))

    async def work():
        await placement.reserve({"rollout": ResourceGroup(count=2)})
        inside = [await placement.spawn(Bare, boot, group="rollout") for _ in range(2)]
        outside = await placement.spawn(Bare, boot)
        return [await actor.call("place") for actor in (*inside, outside)]

    first, second, outside = using(placement, work)
    assert first == second is not None
    assert outside is None


def test_actors_that_need_nothing_need_no_place(local_ray, boot):
    placement = RayPlacement(PlacementConfig(kind="ray", cpus_per_actor=0))

    async def work():
        await placement.reserve({"workers": ResourceGroup(count=100)})
        return await (await placement.spawn(Bare, boot, group="workers")).call("place")

    assert using(placement, work) is None


def test_inline_holds_any_group(boot):
    placement = InlinePlacement(store=None)

    async def work():
        await placement.reserve({"rollout": ResourceGroup(count=1000, gpus=8)})
        return await (await placement.spawn(Bare, boot, group="rollout")).call("count")

    assert using(placement, work) == 0
