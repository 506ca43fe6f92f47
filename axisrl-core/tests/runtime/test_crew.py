"""A place is set aside for every actor that is started, and no other: one too few would be a wait
without end."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from axisrl.runtime.crew import hire
from axisrl.runtime.memory import MemoryTurns
from axisrl.runtime.spans import SpanLog

SHELF = Path(__file__).with_name("shelf.py")


class Silent:
    """A handle of an actor of which nothing is expected but what its loss needs."""

    def __init__(self, needs):
        self.needs = needs

    async def call(self, method, *args):
        return self.needs if method == "needs" else None


class Watches:
    """A supervisor that remembers whom it was given, and who would be replaced."""

    def __init__(self):
        self.replaced, self.irreplaceable, self.pooled = set(), set(), set()

    def watch(self, post, refill=None):
        (self.irreplaceable if refill is None else self.replaced).add(post.name)
        if post.pooled:
            self.pooled.add(post.name)


class Recording:
    """A placement that starts nothing and remembers what it was asked for."""

    def __init__(self, needs=()):
        self.needs, self.places, self.started, self.gpus = needs, Counter(), Counter(), {}
        self.bundles = {}
        self.actors, self.peers = {}, {}

    async def reserve(self, groups):
        for name, group in groups.items():
            self.places[name] += group.count
            self.gpus[name] = group.gpus
            self.bundles[name] = group.bundles

    async def spawn(self, actor, boot, *peers, group=""):
        self.started[group] += 1
        handle = self.actors[f"{boot.role} {boot.rank}"] = Silent(self.needs)
        self.peers[f"{boot.role} {boot.rank}"] = peers[0] if peers else {}
        assert self.started[group] <= self.places[group], f"no place is left in group {group!r}"
        return handle


@pytest.fixture
def hired(stage, tmp_path):
    """``hired(*overrides, needs=...)``: the crew of a run and the placement that was asked for
    it."""

    def hired(*overrides, needs=()):
        boot = stage.boot(*overrides, role="driver", plugins=[SHELF])
        placement, watches = Recording(needs), Watches()
        memory = MemoryTurns(boot.config.placement.colocate, SpanLog(tmp_path / "events.jsonl"))
        return asyncio.run(hire(boot, placement, None, watches, memory)), placement, watches

    return hired


VALUE = ("advantage=stage/critic", "value={loss: stage/error, trainer: stage/trainer}")
REFERENCE = frozenset({"reference_logprobs"})


@pytest.mark.parametrize(
    ("overrides", "needs", "groups"),
    [
        ((), (), {"trainer": 1, "rollout": 1, "workers": 2}),
        (("placement.engines=3",), (), {"trainer": 1, "rollout": 3, "workers": 2}),
        (("placement=ray", "rollout.workers=4"), (), {"trainer": 1, "rollout": 1, "workers": 5}),
        (
            ("placement=ray", "placement.engines=2", "placement.engine_nodes=3"),
            (),
            {"trainer": 1, "rollout-0": 3, "rollout-1": 3, "workers": 2},
        ),
        (VALUE, (), {"trainer": 2, "rollout": 1, "workers": 2}),
        ((*VALUE, "kl.coef=0.1"), REFERENCE, {"trainer": 3, "rollout": 1, "workers": 2}),
        ((), REFERENCE, {"trainer": 1, "reference": 1, "rollout": 1, "workers": 2}),
        (
            ("placement.verifiers=2", "placement.rewards=3"),
            (),
            {"trainer": 1, "rollout": 1, "workers": 2, "verifier": 2, "reward": 3},
        ),
        (
            ("services.wiki={use: shelf/shelf, replicas: 2}",),
            (),
            {"trainer": 1, "rollout": 1, "workers": 2, "service-wiki": 2},
        ),
    ],
)
def test_every_group_has_as_many_places_as_actors(hired, overrides, needs, groups):
    _, placement, _ = hired(*overrides, needs=needs)
    assert placement.places == Counter(groups)
    assert placement.started == placement.places


def test_an_engine_on_several_machines_is_watched_and_replaced_as_one(hired):
    nodes = ("placement=ray", "placement.engine_nodes=2")
    _, placement, watches = hired(*nodes)
    assert {"engine 0", "engine-0 1"} < placement.actors.keys()
    assert "engine 0" in watches.replaced
    assert not any(name.startswith("engine-0") for name in watches.irreplaceable)
    assert "trainer 0" in watches.irreplaceable


def test_engines_and_models_get_their_own_share_of_gpus(hired):
    shares = ("placement.gpus_engine=2", "placement.gpus_trainer=0.5")
    _, placement, _ = hired("placement=ray", *shares, needs=REFERENCE)
    shared = {"trainer": 0.5, "rollout": 2, "reference": 0.5}
    assert {name: gpus for name, gpus in placement.gpus.items() if gpus} == shared


def test_replicas_of_a_service_get_their_own_share_of_gpus(hired):
    _, placement, _ = hired("placement=ray", "services.wiki={use: shelf/shelf, gpus: 0.25}")
    assert placement.gpus["service-wiki"] == 0.25


def test_a_run_that_plays_nothing_starts_no_service(hired):
    offline = ("mode=train_offline", "loss=core/sft", "eval=null")
    _, placement, _ = hired(*offline, "services.wiki=shelf/shelf")
    assert placement.started["service-wiki"] == placement.places["service-wiki"] == 0


def test_services_are_there_before_those_who_call_them(hired):
    _, placement, _ = hired("placement.verifiers=1", "services.wiki=shelf/shelf")
    order = list(placement.actors)
    assert order.index("service-wiki 0") < order.index("verifier 0") < order.index("rollout 0")
    assert list(placement.peers["verifier 0"]) == ["service-wiki"]
    assert list(placement.peers["rollout 0"]) == ["engine", "service-wiki", "verifier"]


def test_colocated_engines_and_models_share_as_many_bundles_as_the_larger_count(hired):
    two = ("placement={kind: ray, colocate: true, engines: 2}", "rollout.workers=3")
    _, placement, _ = hired(*two, *VALUE, needs=REFERENCE)
    shared = {name: count for name, count in placement.bundles.items() if count}
    assert shared == {"trainer": 2, "rollout": 2, "reference": 2}
    _, placement, _ = hired("placement.engines=2")
    assert set(placement.bundles.values()) == {0}


def test_engines_are_named_by_rank(hired):
    crew, _, _ = hired("placement.engines=2")
    assert list(crew.engines.posts) == ["engine rank 0", "engine rank 1"]


def test_on_ray_every_actor_is_watched_and_engines_and_workers_are_replaced(hired):
    sizes = ("placement.engines=2", "rollout.workers=2")
    _, _, watches = hired("placement=ray", *sizes, *VALUE)
    assert watches.replaced == {"engine 0", "engine 1", "rollout 0", "rollout 1"}
    assert watches.irreplaceable == {"trainer 0", "value 0", "recorder 0"}


def test_judges_and_services_are_replaced_at_their_callers_cost(hired):
    judges = ("placement.verifiers=2", "placement.rewards=1", "services.wiki=shelf/shelf")
    _, _, watches = hired("placement=ray", *judges)
    assert watches.pooled == {"verifier 0", "verifier 1", "reward 0", "service-wiki 0"}
    assert watches.pooled < watches.replaced


def test_what_lives_in_this_process_is_not_watched(hired):
    _, _, watches = hired()
    assert watches.replaced | watches.irreplaceable == set()
