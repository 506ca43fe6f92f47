"""Who has the memory: one side at a time, whatever a run is made of; and it changes nothing."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from axisrl.errors import (
    ActorGone,
    ConfigError,
    EnvironmentProblem,
    Irreplaceable,
    RunFailed,
)
from axisrl.runtime.engine import EngineActor
from axisrl.runtime.memory import ENGINE_PARTS, TRAINER_PARTS, MemoryTurns
from axisrl.runtime.spans import SpanLog, read_events
from axisrl.runtime.supervisor import Post
from axisrl.testing.fakes import ScriptedEngine, ScriptedTrainer
from axisrl.types import GenerateRequest, SamplingParams

EXTRAS = (Path(__file__).with_name("extras.py"),)
COLOCATE = "placement.colocate=true"
CRITIC = ("advantage=stage/critic", "value={loss: stage/error}")


class Actor:
    """Has its parts on the device, and writes down every move."""

    def __init__(self, name, parts, log):
        self.name, self.there, self.log, self.error = name, set(parts), log, None

    async def call(self, method, parts):
        if self.error:
            raise self.error
        self.there = self.there - {*parts} if method == "offload" else self.there | {*parts}
        self.log.append((method, self.name, tuple(parts)))


class House:
    """A policy, a value model and two engines, as a run starts them."""

    def __init__(self, folder, colocate=True):
        self.log, self.path = [], folder / "events.jsonl"
        self.spans = SpanLog(self.path)
        self.turns = MemoryTurns(colocate, self.spans)
        self.models = {name: Actor(name, TRAINER_PARTS, self.log) for name in ("policy", "value")}
        self.engines = {name: Actor(name, ENGINE_PARTS, self.log) for name in ("e0", "e1")}

    async def start(self):
        for name, model in self.models.items():
            await self.turns.add_model(name, model)
        await self.turns.add_engines(self.engines)
        self.log.clear()

    def there(self):
        everybody = {**self.models, **self.engines}
        return {name: actor.there for name, actor in everybody.items() if actor.there}


@pytest.fixture
def house(tmp_path):
    house = House(tmp_path)
    asyncio.run(house.start())
    yield house
    house.spans.close()


def test_at_first_engines_hold_everything_and_models_nothing(house):
    assert house.there() == {"e0": {*ENGINE_PARTS}, "e1": {*ENGINE_PARTS}}


def test_a_model_that_started_is_away_before_the_next_one_starts(tmp_path):
    house = House(tmp_path)
    asyncio.run(house.turns.add_model("policy", house.models["policy"]))
    assert house.log == [("offload", "policy", ("optimizer", "weights"))]
    house.spans.close()


def test_a_colocated_step_moves_everything_once_and_out_before_in(house):
    async def step():
        async with house.turns.turn("value"):
            assert house.there() == {"value": {"weights"}}
        async with house.turns.turn("value", optimizer=True):
            assert house.there() == {"value": {*TRAINER_PARTS}}
        async with house.turns.turn("policy", optimizer=True):
            assert house.there() == {"policy": {*TRAINER_PARTS}}
        await house.turns.sync()
        assert house.there() == {who: {"weights"} for who in ("policy", "e0", "e1")}
        await house.turns.play()

    asyncio.run(step())
    assert house.log == [
        ("offload", "e0", ("kv_cache", "weights")),
        ("offload", "e1", ("kv_cache", "weights")),
        ("reload", "value", ("weights",)),
        ("reload", "value", ("optimizer",)),
        ("offload", "value", ("optimizer", "weights")),
        ("reload", "policy", ("optimizer", "weights")),
        ("offload", "policy", ("optimizer",)),
        ("reload", "e0", ("weights",)),
        ("reload", "e1", ("weights",)),
        ("offload", "policy", ("weights",)),
        ("reload", "e0", ("kv_cache",)),
        ("reload", "e1", ("kv_cache",)),
    ]


def test_what_is_where_it_should_be_is_not_moved(house):
    async def twice():
        await house.turns.play()
        async with house.turns.turn("policy"):
            pass
        house.log.clear()
        async with house.turns.turn("policy"):
            pass

    asyncio.run(twice())
    assert house.log == []


def test_models_that_are_asked_at_once_work_one_after_another(house):
    async def work(name):
        async with house.turns.turn(name):
            await asyncio.sleep(0)
            assert house.there() == {name: {"weights"}}
            return name

    async def both():
        return await asyncio.gather(work("value"), work("policy"))

    assert asyncio.run(both()) == ["value", "policy"]


def test_a_move_that_was_broken_off_is_made_again(house):
    house.engines["e1"].error = RunFailed("gone")

    async def work():
        with pytest.raises(RunFailed):
            await house.turns.sync()
        house.engines["e1"].error = None
        await house.turns.play()

    asyncio.run(work())
    assert house.there() == {"e0": {*ENGINE_PARTS}, "e1": {*ENGINE_PARTS}}
    assert house.log[-1] == ("reload", "e1", ("kv_cache",))


def test_an_engine_that_is_lost_on_the_way_out_is_waited_for_and_then_moved(house):
    dead, new = Actor("dead", ENGINE_PARTS, house.log), Actor("new", ENGINE_PARTS, house.log)
    post = Post("engine 2", dead)

    async def work():
        await house.turns.add_engines({"e2": post})
        dead.error = ActorGone("engine 2 is gone")

        async def replace():
            await asyncio.sleep(0)
            house.turns.check_room("engine 2")
            post.fill(new)

        replaced = asyncio.ensure_future(replace())
        async with house.turns.turn("policy"):
            assert house.there() == {"policy": {"weights"}} and new.there == set()
        await replaced
        await house.turns.play()

    asyncio.run(work())
    assert new.there == {*ENGINE_PARTS}


def test_no_engine_starts_where_a_model_has_the_memory(house):
    async def work():
        house.turns.check_room("engine 0")
        async with house.turns.turn("value"):
            with pytest.raises(Irreplaceable, match="engine 0 is gone, and the GPUs"):
                house.turns.check_room("engine 0")
        await house.turns.sync()
        with pytest.raises(Irreplaceable):
            house.turns.check_room("engine 0")
        await house.turns.play()
        house.turns.check_room("engine 0")

    asyncio.run(work())


def test_moves_are_phases_of_the_step_that_goes_on(house):
    async def work():
        with house.spans.span("score", step=3):
            async with house.turns.turn("policy"):
                pass

    asyncio.run(work())
    drawn = [(e["name"], e["args"]["step"]) for e in read_events(house.path) if e["ph"] == "X"]
    assert drawn[-3:] == [("offload", 3), ("reload", 3), ("score", 3)]


def test_without_colocate_nobody_is_asked(tmp_path):
    house = House(tmp_path, colocate=False)

    async def run():
        await house.start()
        async with house.turns.turn("value"), house.turns.turn("policy", optimizer=True):
            await house.turns.sync()
            await house.turns.play()

    asyncio.run(run())
    assert house.log == [] and house.spans.total == {}
    house.spans.close()


@pytest.fixture
def device(monkeypatch):
    """Every state that the one device of a run was in: who -> what it had there."""
    there, states = {}, []

    def name_of(fake):
        if isinstance(fake, ScriptedEngine):
            return "teacher" if type(fake) is ScriptedEngine else "engine"
        return fake.model.head + (" frozen" if fake.frozen else "")

    def watch(cls, parts, method):
        real = getattr(cls, method)

        def note(fake):
            has = set() if method == "stop" else {*parts} - fake.away
            there[id(fake)] = (name_of(fake), has)
            states.append(sorted((name, tuple(sorted(has))) for name, has in there.values() if has))

        async def noting_async(self, *given):
            await real(self, *given)
            note(self)

        def noting(self, *given):
            real(self, *given)
            note(self)

        changed = noting_async if cls is ScriptedEngine else noting
        monkeypatch.setattr(cls, method, changed)

    for method in ("start", "offload", "reload", "stop"):
        watch(ScriptedEngine, ENGINE_PARTS, method)
        watch(ScriptedTrainer, TRAINER_PARTS, method)
    return states


RUNS = [
    (),
    (*CRITIC, "train.updates_per_sync=2", "loss=stage/proximal"),
    (*CRITIC, "kl={coef: 0.1, reset_every: 2}", "value.warmup_updates=1"),
    ("placement.engines=2", "teacher.model=MODEL"),
    ("teacher={model: MODEL, engine: extras/scorer}", "kl.coef=0.1"),
]


@pytest.mark.parametrize("settings", RUNS, ids=" ".join)
def test_a_colocated_run_is_the_same_run_and_never_holds_two_sides(
    stage, device, model_folder, settings
):
    settings = [each.replace("MODEL", str(model_folder)) for each in settings]
    stage(*settings, plugins=EXTRAS)
    plain, plain_rows = untimed(stage.metrics), stage.rollouts("step-000004")
    device.clear()
    stage.dir = stage.dir.with_name("colocated")
    stage(*settings, COLOCATE, plugins=EXTRAS)
    assert untimed(stage.metrics) == plain
    assert rows(stage.rollouts("step-000004")) == rows(plain_rows)
    for state in device:
        assert_one_side(state)
    assert any(state and state[0][0] == "engine" for state in device)


def assert_one_side(state):
    """Engines, or one model; where weights change hands the weights of both sides."""
    if len(state) > 1 and any(name != "engine" for name, _ in state):
        assert all(parts == ("weights",) for _, parts in state), state


def untimed(metrics):
    skipped = ("time/", "system/")
    return [
        {
            name: value
            for name, value in line.items()
            if not name.startswith(skipped) and not name.endswith("_per_s") and name != "time"
        }
        for line in metrics
    ]


def rows(found):
    return [{**row, "summary": {**row["summary"], "seconds": 0}} for row in found]


def test_a_colocated_run_says_what_handing_over_took_and_a_plain_one_does_not(stage):
    stage("eval=null")
    assert not any("time/handover_s" in line for line in stage.metrics)
    stage.dir = stage.dir.with_name("colocated")
    stage("eval=null", COLOCATE)
    assert all(line["time/handover_s"] > 0 for line in stage.metrics)


def test_a_failed_colocated_run_goes_on_as_if_it_had_not_failed(stage):
    settings = (COLOCATE, *CRITIC, "kl={coef: 0.1, reset_every: 1}")
    stage(*settings)
    whole = untimed(stage.metrics)
    stage.dir = stage.dir.with_name("failed")
    with pytest.raises(RunFailed, match="scripted failure of step 3"):
        stage(*settings, "trainer.fail_at_step=3", "value.trainer=stage/trainer")
    stage(*settings, resume=True, allow_drift=True)
    assert untimed(stage.metrics) == whole


def test_other_modes_with_engine_and_trainer_take_turns_too(stage, device):
    stage("mode=mismatch", COLOCATE, "eval=null")
    for state in device:
        assert_one_side(state)
    assert [("lm frozen", ("weights",))] in device


def test_an_engine_actor_holds_calls_until_all_memory_is_back(stage):
    boot = stage.boot(role="engine")
    request = GenerateRequest(
        id="r", prompt_ids=np.zeros(3, np.int32), sampling=SamplingParams(max_tokens=1), seed=0
    )

    async def play():
        actor = EngineActor(boot)
        actor._engine = ScriptedEngine()
        await actor.start()
        await actor.offload(["weights", "kv_cache"])
        call = asyncio.ensure_future(actor.generate(request))
        seen = []
        for part in ("weights", "kv_cache"):
            await asyncio.wait([call], timeout=0.01)
            seen.append((call.done(), len(actor._engine.requests)))
            await actor.reload([part])
        await call
        return seen

    assert asyncio.run(play()) == [(False, 0), (False, 0)]


def test_an_engine_started_without_the_means_says_so_before_the_first_rollout(stage, monkeypatch):
    played = []
    real = ScriptedEngine.generate
    monkeypatch.setattr(
        ScriptedEngine, "generate", lambda self, given: played.append(given) or real(self, given)
    )

    async def cannot(self, parts):
        raise EnvironmentProblem("started without its memory saver", fix="set engine.saver")

    monkeypatch.setattr(ScriptedEngine, "reload", cannot)
    with pytest.raises(EnvironmentProblem, match="without its memory saver"):
        stage(COLOCATE)
    assert played == []


def test_a_component_that_cannot_hand_over_is_named(stage, monkeypatch):
    monkeypatch.delattr(ScriptedTrainer, "offload")
    with pytest.raises(ConfigError, match="the backend of the trainer cannot hand its memory over"):
        stage(COLOCATE)
