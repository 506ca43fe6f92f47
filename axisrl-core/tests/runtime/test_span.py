"""Tests of axisrl.runtime.span."""

import asyncio
import dataclasses

import pytest

from axisrl.config.schema import PlacementConfig
from axisrl.errors import ActorGone, ConfigError, EnvironmentProblem
from axisrl.runtime.engine import EngineActor
from axisrl.runtime.span import SpanHandle, spanning_engine, spawn_span
from axisrl.runtime.supervisor import Post, RestartBudget, Supervisor


class Part:
    """A part of an engine: notes its calls, and raises what it is told to."""

    def __init__(self, host="10.0.0.1", raises=None):
        self.host, self.raises = host, dict(raises or {})
        self.calls, self.killed, self.pid = [], False, int(host.rpartition(".")[2])
        self.gone = asyncio.Event()

    async def call(self, method, *args):
        self.calls.append((method, *args))
        if method in self.raises:
            raise self.raises[method]
        if method == "stay":
            await self.gone.wait()
            raise ActorGone("the server ended")
        answers = {"rendezvous": f"{self.host}:77", "join": self.host}
        return answers.get(method, f"{method} of {self.host}")

    def kill(self):
        self.killed = True


def span_of(*parts):
    return SpanHandle("engine 0", parts)


def two():
    return Part("10.0.0.1"), Part("10.0.0.2")


def test_all_parts_meet_at_the_first_and_start_together():
    first, second = two()
    asyncio.run(span_of(first, second).call("start"))
    assert first.calls == [("rendezvous",), ("join", 0, 2, "10.0.0.1:77"), ("start",)]
    assert second.calls == [("join", 1, 2, "10.0.0.1:77"), ("start",)]


def test_a_part_waits_in_its_start_until_the_others_have_started():
    met = asyncio.Barrier(2)

    class Meeting(Part):
        async def call(self, method, *args):
            if method == "start":
                await met.wait()
            return await super().call(method, *args)

    async def started():
        async with asyncio.timeout(5):
            await span_of(Meeting("10.0.0.1"), Meeting("10.0.0.2")).call("start")

    asyncio.run(started())


def test_whatever_else_is_asked_is_asked_of_the_first():
    first, second = two()
    span = span_of(first, second)
    assert asyncio.run(span.call("generate", "a request")) == "generate of 10.0.0.1"
    assert (first.calls, second.calls) == ([("generate", "a request")], [])
    assert span.pid == 1


def test_a_part_that_does_not_start_is_named_with_its_machine():
    second = Part("10.0.0.2", raises={"start": EnvironmentProblem("no GPU", fix="get one")})
    with pytest.raises(EnvironmentProblem, match=r"^engine 0 part 1, on 10\.0\.0\.2: no GPU"):
        asyncio.run(span_of(Part(), second).call("start"))


def test_a_part_that_does_not_stop_keeps_no_other_from_it_and_is_named():
    first, second = Part(raises={"stop": ActorGone("gone")}), Part("10.0.0.2")
    with pytest.raises(ActorGone, match=r"^engine 0 part 0: gone$"):
        asyncio.run(span_of(first, second).call("stop"))
    assert second.calls == [("stop",)]


def test_the_end_of_a_span_is_the_end_of_all_parts():
    first, second = two()
    span_of(first, second).kill()
    assert first.killed and second.killed


@pytest.mark.parametrize("lost", [0, 1])
def test_a_part_that_is_gone_ends_the_others_and_is_named(lost):
    async def watched():
        parts = two()
        span = span_of(*parts)
        await span.call("start")
        post, found = Post("engine 0", span), []
        supervisor = Supervisor(RestartBudget(1), 60.0, 60.0)

        async def refill():
            found.append([part.killed for part in parts])
            post.fill(Part())

        supervisor.watch(post, refill)
        await asyncio.sleep(0)
        parts[lost].gone.set()
        async with asyncio.timeout(5):
            await supervisor.guard(post.successor(span))
        await supervisor.close()
        return found

    assert asyncio.run(watched()) == [[True, True]]


def test_a_part_that_hangs_is_named_with_its_machine():
    class Hanging(Part):
        async def call(self, method, *args):
            if method == "ping":
                await asyncio.Event().wait()
            return await super().call(method, *args)

    async def watched():
        span = span_of(Part(), Hanging("10.0.0.2"))
        await span.call("start")
        supervisor = Supervisor(RestartBudget(1), 0.02, 60.0)
        supervisor.watch(Post("engine 0", span))
        try:
            await supervisor.guard(asyncio.Event().wait())
        finally:
            await supervisor.close()

    late = r"^engine 0 part 1, on 10\.0\.0\.2 did not answer for placement\.lease_s 0\.02 s"
    with pytest.raises(ActorGone, match=late):
        asyncio.run(watched())


class Placing:
    """A placement that starts parts, as many as there is room for."""

    def __init__(self, room=9):
        self.room, self.places, self.parts = room, [], []

    async def spawn(self, actor, boot, *args, group=""):
        if len(self.parts) == self.room:
            raise ActorGone("its machine is gone")
        self.places.append((boot.role, boot.rank, group))
        self.parts.append(Part())
        return self.parts[-1]


def spawned(placement, stage, nodes, rank=0):
    boot = stage.boot(role="engine")
    where = PlacementConfig(kind="ray", engine_nodes=nodes)
    config = dataclasses.replace(boot.config, placement=where)
    boot = dataclasses.replace(boot, config=config, rank=rank)
    return asyncio.run(spawn_span(placement, EngineActor, boot, "rollout"))


def test_parts_have_names_and_places_of_their_own(stage):
    placement = Placing()
    span = spawned(placement, stage, nodes=3, rank=1)
    assert span.parts == tuple(placement.parts)
    assert placement.places == [
        ("engine", 1, "rollout-1"),
        ("engine-1", 1, "rollout-1"),
        ("engine-1", 2, "rollout-1"),
    ]


def test_an_engine_on_one_machine_is_an_actor_like_any_other(stage):
    placement = Placing()
    assert spawned(placement, stage, nodes=1) is placement.parts[0]
    assert placement.places == [("engine", 0, "rollout")]


def test_parts_give_their_places_back_when_one_cannot_be_started(stage):
    placement = Placing(room=1)
    with pytest.raises(ActorGone, match="its machine is gone"):
        spawned(placement, stage, nodes=2)
    assert [part.killed for part in placement.parts] == [True]


class Serving:
    """The methods of an engine; none of them is called here."""

    start = generate = abort = update_weights = pause = resume = stop = print


class Spanning(Serving):
    def join(self, part, parts, address):
        self.joined = part, parts, address


def test_an_engine_that_serves_on_one_machine_is_refused():
    with pytest.raises(ConfigError, match=r"placement\.engine_nodes: the engine serves on one"):
        spanning_engine(Serving())


def test_an_actor_tells_its_engine_which_part_it_is_and_answers_where_that_is():
    actor = EngineActor.__new__(EngineActor)
    actor._engine = Spanning()
    address = asyncio.run(actor.rendezvous())
    host = asyncio.run(actor.join(1, 2, address))
    assert address.rpartition(":")[0] == host
    assert actor._engine.joined == (1, 2, address)
