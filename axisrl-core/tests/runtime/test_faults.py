"""Which process dies when: once, at its point, and never without being written down first."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from axisrl.errors import UsageError
from axisrl.runtime.faults import (
    Fault,
    FaultPlan,
    Injector,
    read_ledger,
    read_plan,
    write_plan,
)


class Actor:
    """On another machine, unless it is said to be here."""

    def __init__(self, pid=0):
        self.killed = 0
        self.pid = pid

    def kill(self):
        self.killed += 1


class Store:
    def __init__(self):
        self.closed = False

    async def close(self):
        self.closed = True


def engine(edge="before", **options):
    return Fault(step=2, phase="train", edge=edge, target="engine", **options)


def injector(tmp_path, *faults, store=None, here=False, **actors):
    made = Injector(FaultPlan(faults=faults, ledger=tmp_path / "faults.jsonl"))
    named = {name.replace("_", " "): actor for name, actor in actors.items()}
    made.aim(named, store or Store(), here=here)
    return made


def victims(tmp_path):
    return [entry.victim for entry in read_ledger(tmp_path / "faults.jsonl")]


def test_a_fault_happens_once_at_its_own_point(tmp_path):
    actor = Actor()
    faults = injector(tmp_path, engine(), engine_0=actor)
    for border in [("after", "train", 2), ("before", "sync", 2), ("before", "train", 1)]:
        faults.border(*border)
    assert (actor.killed, victims(tmp_path)) == (0, [])
    for _ in range(2):
        faults.border("before", "train", 2)
    assert (actor.killed, victims(tmp_path)) == (1, ["engine 0"])


def test_a_run_that_goes_on_does_not_suffer_it_again(tmp_path):
    injector(tmp_path, engine(), engine_0=Actor()).border("before", "train", 2)
    actor = Actor()
    other = engine("after")
    faults = injector(tmp_path, engine(), other, engine_0=actor)
    faults.border("before", "train", 2)
    assert actor.killed == 0
    faults.border("after", "train", 2)
    assert actor.killed == 1
    assert [entry.fault for entry in read_ledger(tmp_path / "faults.jsonl")] == [engine(), other]


def test_the_rank_chooses_among_those_that_live_by_name(tmp_path):
    first, second = Actor(), Actor()
    faults = injector(
        tmp_path, engine(rank=1), engine("after", rank=2), engine_0=first, engine_1=second
    )
    faults.border("before", "train", 2)
    assert (first.killed, second.killed) == (0, 1)
    faults.border("after", "train", 2)
    assert (first.killed, second.killed) == (1, 1)


def test_a_service_is_one_whatever_its_name(tmp_path):
    actor = Actor()
    fault = Fault(step=2, phase="rollout", edge="before", target="service")
    faults = Injector(FaultPlan(faults=[fault], ledger=tmp_path / "faults.jsonl"))
    faults.aim({"service-search 0": actor, "rollout 0": Actor()}, Store(), here=False)
    faults.border("before", "rollout", 2)
    assert (actor.killed, victims(tmp_path)) == (1, ["service-search 0"])


def test_a_fault_that_finds_nobody_is_written_down_as_such(tmp_path):
    injector(tmp_path, engine(), trainer_0=Actor()).border("before", "train", 2)
    assert victims(tmp_path) == [""]


def test_a_process_is_ended_by_sigkill_and_one_that_is_gone_already_is_no_error(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    actor = Actor(process.pid)
    faults = injector(tmp_path, engine(), engine("after"), here=True, engine_0=actor)
    faults.border("before", "train", 2)
    assert process.wait(timeout=10) == -signal.SIGKILL
    process.stdin.close()
    faults.border("after", "train", 2)
    assert victims(tmp_path) == ["engine 0", "engine 0"]
    assert actor.killed == 0


def test_an_actor_without_a_process_of_its_own_is_nobody_to_hit(tmp_path):
    actor = Actor(os.getpid())
    injector(tmp_path, engine(), here=True, engine_0=actor).border("before", "train", 2)
    assert (victims(tmp_path), actor.killed) == ([""], 0)


def test_the_driver_dies_after_the_ledger_says_so(tmp_path):
    plan = tmp_path / "faults.json"
    write_plan(plan, [Fault(step=1, phase="sync", edge="before")])
    program = f"""
from pathlib import Path
from axisrl.runtime.faults import Injector, read_plan
faults = Injector(read_plan(Path({str(plan)!r})))
faults.border("before", "sync", 1)
print("alive")
"""
    for expected in (-signal.SIGKILL, 0):
        done = subprocess.run(
            [sys.executable, "-c", program], env=dict(os.environ), capture_output=True, check=False
        )
        assert done.returncode == expected, done.stderr
        assert victims(tmp_path) == ["driver"]


def test_a_lost_store_is_closed_for_everybody(tmp_path):
    store = Store()

    async def scene():
        fault = Fault(step=1, phase="score", edge="before", target="store")
        injector(tmp_path, fault, store=store).border("before", "score", 1)
        await asyncio.sleep(0)

    asyncio.run(scene())
    assert store.closed


def test_during_is_some_time_after_the_phase_began(tmp_path):
    actor = Actor()

    async def scene():
        faults = injector(tmp_path, engine("during", delay_s=0.001), engine_0=actor)
        faults.border("before", "train", 2)
        assert actor.killed == 0
        while not actor.killed:
            await asyncio.sleep(0)
        faults.border("after", "train", 2)

    asyncio.run(scene())
    assert actor.killed == 1


def test_during_is_the_phases_end_at_the_latest(tmp_path):
    actor = Actor()

    async def scene():
        faults = injector(tmp_path, engine("during", delay_s=0.001), engine_0=actor)
        faults.border("before", "train", 2)
        faults.border("after", "train", 2)
        assert actor.killed == 1
        await asyncio.sleep(0.01)

    asyncio.run(scene())
    assert (actor.killed, victims(tmp_path)) == (1, ["engine 0"])


def test_a_plan_is_read_as_it_was_written(tmp_path):
    faults = [engine(rank=1), Fault(step=1, phase="rollout", edge="during", delay_s=0.5)]
    write_plan(tmp_path / "plan.json", faults)
    plan = read_plan(tmp_path / "plan.json")
    assert (plan.faults, plan.ledger) == (faults, tmp_path / "plan.jsonl")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        json.dumps([{"step": 1}]),
        json.dumps([{"step": 1, "phase": "train", "edge": "beside"}]),
        json.dumps([{"step": 1, "phase": "train", "edge": "after", "when": 1}]),
    ],
)
def test_a_file_that_is_no_plan_is_one_clear_error(tmp_path, text):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"plan\.json"):
        read_plan(path)
