"""Verifiers, rewards and services in processes of their own, on Ray as a user starts it."""

import pytest

pytest.importorskip("ray")

SHORT = ("train.updates=2", "eval=null", "checkpoint.every=0")
POOLS = ("placement.verifiers=2", "placement.rewards=1")
DEADLY = '''
import os
import signal
import threading
from pathlib import Path

from axisrl.plugins import EnvComponent, ServiceComponent, VerifierComponent, hookimpl
from axisrl.types import Message, Observation, StepResult, Verdict

ONCE = Path({folder!r}) / "killed"


@hookimpl
def axisrl_verifiers():
    return [
        VerifierComponent(name="judge", target=f"{{__name__}}:Judge"),
        VerifierComponent(name="blocks", target=f"{{__name__}}:Blocks"),
    ]


@hookimpl
def axisrl_services():
    return [ServiceComponent(name="words", target=f"{{__name__}}:Words")]


def die_once(name):
    mark = ONCE.with_name(name)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Judge:
    """Takes its process down over one rollout, once."""

    def __init__(self, config, context):
        self._words = context.services["words"]

    async def verify(self, task, rollout):
        if rollout.id == "train-000001-003":
            die_once("verifier")
        said = await self._words.call("measure", rollout.answer, rollout.id)
        return Verdict(score=said % 7 / 7, passed=bool(said % 2))


class Words:
    def __init__(self, config, context):
        pass

    async def start(self):
        pass

    async def measure(self, text, asked):
        if asked == "train-000002-000":
            die_once("service")
        return len(text)

    async def stop(self):
        pass


class Blocks:
    """Never comes back over one rollout, and does not await."""

    def __init__(self, config, context):
        pass

    async def verify(self, task, rollout):
        if rollout.id == "train-000001-000":
            threading.Event().wait()
        return Verdict(score=1.0, passed=True)
'''


@pytest.fixture
def deadly(make_run, tmp_path):
    """``deadly(name, verifiers, *overrides)``: a run whose verifiers and service may die."""
    plugin = tmp_path / "deadly.py"
    plugin.write_text(DEADLY.format(folder=str(tmp_path)))

    def make(name, verifiers, *overrides):
        words = (
            "services.words=deadly/words",
            f"verifiers={{{verifiers}}}",
            "rewards.main=core/sum",
        )
        return make_run(name, "--plugin", str(plugin), *SHORT, *words, *overrides)

    return make


def test_judges_in_processes_of_their_own_give_the_run_of_one_process(make_run, same_run):
    inline = make_run("inline", *SHORT)
    inline.whole()
    pools = make_run("pools", *SHORT, "placement=ray", "rollout.workers=2", *POOLS)
    pools.whole()
    same_run(pools, inline)


def test_a_verifier_and_a_service_that_are_killed_cost_nothing(deadly, same_run, tmp_path):
    for mark in ("verifier", "service"):
        (tmp_path / mark).touch()
    inline = deadly("inline", "judge: deadly/judge")
    inline.whole()
    for mark in ("verifier", "service"):
        (tmp_path / mark).unlink()
    ray = deadly("ray", "judge: deadly/judge", "placement=ray", *POOLS)
    output = ray.whole()
    assert "verifier" in output and "service-words 0 is replaced" in output
    same_run(ray, inline)
    last = ray.metrics()[-1]
    assert last["recovery/replaced_verifier"] == last["recovery/replaced_service-words"] == 1


def test_a_verifier_that_blocks_costs_its_own_rollout_and_no_other(deadly):
    limit = ("rollout.score_timeout_s=1", "placement=ray", "placement.verifiers=1")
    run = deadly("blocked", "judge: deadly/blocks", *limit)
    run.whole()
    failed = [
        row["summary"]
        for rows in run.rollouts().values()
        for row in rows
        if row["summary"]["outcome"] != "completed" and row["summary"]["reward"] is None
    ]
    assert [(one["id"], one["outcome"]) for one in failed] == [
        ("train-000001-000", "verifier_error")
    ]
    assert failed[0]["error"] == (
        "verifier judge gave no answer within 1 s and blocked its process, which was ended"
    )
