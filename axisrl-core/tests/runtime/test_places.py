"""Where actors that share GPUs live, by the ids that Ray gives them. No device is needed for it."""

import asyncio
import dataclasses

import pytest

from axisrl.config.schema import PlacementConfig
from axisrl.errors import ConfigError
from axisrl.runtime.actors import Actor
from axisrl.runtime.placement import RayPlacement
from axisrl.runtime.places import ResourceGroup

CONFIG = PlacementConfig(kind="ray", cpus_per_actor=0.1)


class Bare(Actor):
    """An actor without plugins that knows its GPU."""

    def __init__(self, boot, store=None):
        self.boot = boot

    def gpus(self):
        import ray

        return tuple(ray.get_gpu_ids())


@pytest.fixture
def boot(stage):
    return stage.boot(role="")


@pytest.fixture
def gpus(local_ray, boot):
    """``gpus(groups, *crew)``: (role, rank) -> GPU ids, of a crew of (group, role, rank)s that is
    started in this order. A group after ``None`` is reserved once the crew before it is there."""

    async def started(groups, crew):
        placement, found, later = RayPlacement(CONFIG), {}, dict(groups.pop(None, {}))
        try:
            await placement.reserve(groups)
            for group, role, rank in crew:
                if group in later:
                    await placement.reserve({group: later.pop(group)})
                one = dataclasses.replace(boot, role=role, rank=rank)
                actor = await placement.spawn(Bare, one, group=group)
                found[f"{role} {rank}"] = await actor.call("gpus")
            return found
        finally:
            await placement.close()

    return lambda groups, *crew: asyncio.run(started(groups, crew))


def shared(engines, models, bundles, share=0.2):
    return {
        "trainer": ResourceGroup(count=models, gpus=share, bundles=bundles),
        "rollout": ResourceGroup(count=engines, gpus=0.5, bundles=bundles),
        "workers": ResourceGroup(count=1),
    }


def test_two_engines_share_two_gpus_with_a_trainer_and_a_value_model(gpus):
    found = gpus(
        shared(engines=2, models=2, bundles=2),
        ("trainer", "trainer", 0),
        ("trainer", "value", 0),
        ("rollout", "engine", 0),
        ("rollout", "engine", 1),
        ("workers", "rollout", 0),
    )
    assert found["trainer 0"] == found["engine 0"] != found["engine 1"] == found["value 0"]
    assert len(found["engine 0"]) == 1 and found["rollout 0"] == ()


def test_one_engine_shares_with_the_first_of_two_ranks_and_later_models_go_round(gpus):
    found = gpus(
        shared(engines=1, models=4, bundles=2),
        ("trainer", "trainer", 0),
        ("trainer", "trainer", 1),
        ("trainer", "value", 0),
        ("trainer", "value", 1),
        ("rollout", "engine", 0),
    )
    assert found["trainer 0"] == found["value 0"] == found["engine 0"]
    assert found["trainer 1"] == found["value 1"] != found["engine 0"]


def test_what_takes_the_place_of_another_gets_its_gpu(gpus):
    groups = shared(engines=2, models=1, bundles=2, share=0.1)
    groups["rollout"] = ResourceGroup(count=2, gpus=0.4, bundles=2)
    engines = [("rollout", "engine", rank) for rank in (0, 1)]
    found = gpus(groups, *engines, ("rollout", "engine", 0))
    assert found["engine 0"] != found["engine 1"]


def test_a_group_that_comes_later_shares_the_gpus_there_are(gpus):
    later = {"reference": ResourceGroup(count=1, gpus=0.2, bundles=1)}
    found = gpus(
        {**shared(engines=1, models=1, bundles=1), None: later},
        ("trainer", "trainer", 0),
        ("rollout", "engine", 0),
        ("reference", "reference", 0),
    )
    assert len(set(found.values())) == 1


def test_without_bundles_engines_and_models_have_gpus_of_their_own(gpus):
    groups = {
        "trainer": ResourceGroup(count=2, gpus=0.5),
        "rollout": ResourceGroup(count=1, gpus=1),
    }
    found = gpus(
        groups, ("trainer", "trainer", 0), ("trainer", "value", 0), ("rollout", "engine", 0)
    )
    assert found["trainer 0"] == found["value 0"] != found["engine 0"]


def test_shares_that_exceed_a_gpu_are_named(gpus):
    groups = shared(engines=1, models=3, bundles=1)
    with pytest.raises(ConfigError) as caught:
        gpus(groups)
    told = "placement.colocate puts 4 actors on one GPU, and they take 1.1 of it"
    assert caught.value.message == told


def test_more_shared_gpus_than_there_are_are_named(gpus):
    with pytest.raises(ConfigError) as caught:
        gpus(shared(engines=3, models=1, bundles=3))
    assert caught.value.message == (
        "placement ray cannot hold the places that trainer and rollout share, 3 of 0.2 CPU, 1 GPU: "
        "the cluster has 2 GPU for it, 2 on the largest machine"
    )


def test_more_machines_than_there_are_are_named(gpus):
    with pytest.raises(ConfigError) as caught:
        gpus({"rollout-0": ResourceGroup(count=2, gpus=1, apart=True)})
    assert caught.value.message == (
        "placement ray cannot hold resource group rollout-0, 2 actors of 0.1 CPU, 1 GPU, each on a "
        "machine of its own: the cluster has 1 such machines"
    )


def test_an_actor_apart_is_alone_in_its_place(gpus):
    apart = {"rollout-0": ResourceGroup(count=1, gpus=1, apart=True)}
    found = gpus(apart, ("rollout-0", "engine", 0))
    assert len(found["engine 0"]) == 1


def test_colocated_actors_need_no_gpu(local_ray, boot):
    config = dataclasses.replace(CONFIG, cpus_per_actor=0.0)
    placement = RayPlacement(config)

    async def work():
        try:
            await placement.reserve(
                {"rollout": ResourceGroup(count=2, bundles=2), "late": ResourceGroup(count=0)}
            )
            await placement.reserve({"reference": ResourceGroup(count=1, bundles=2)})
            actor = await placement.spawn(Bare, boot, group="rollout")
            return await actor.call("gpus")
        finally:
            await placement.close()

    assert asyncio.run(work()) == ()
