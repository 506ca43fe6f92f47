"""Verifiers, rewards and services in processes of their own, on Ray as a user starts it."""

import pytest

pytest.importorskip("ray")

SHORT = ("train.updates=2", "eval=null", "checkpoint.every=0")
POOLS = (
    "placement.kind=ray",
    "placement.cpus_per_actor=0.1",
    "placement.verifiers=2",
    "placement.rewards=1",
    "rollout.workers=2",
)
DEADLY = '''
import os
import signal
from pathlib import Path

from axisrl.plugins import ServiceComponent, VerifierComponent, hookimpl
from axisrl.types import Verdict

FOLDER = Path({folder!r})


@hookimpl
def axisrl_verifiers():
    return [VerifierComponent(name="judge", target=f"{{__name__}}:Judge")]


@hookimpl
def axisrl_services():
    return [ServiceComponent(name="words", target=f"{{__name__}}:Words")]


def die_once(name):
    mark = FOLDER / name
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
'''


@pytest.fixture
def deadly(make_run, tmp_path):
    """``deadly(name, *overrides)``: a run whose verifier and service die once, if there is no mark
    that they did."""
    plugin = tmp_path / "deadly.py"
    plugin.write_text(DEADLY.format(folder=str(tmp_path)))

    def make(name, *overrides):
        words = (
            "services.words=deadly/words",
            "verifiers={judge: deadly/judge}",
            "rewards.main=core/sum",
        )
        return make_run(name, "--plugin", str(plugin), *SHORT, *words, *overrides)

    return make


def test_a_verifier_and_a_service_that_are_killed_cost_nothing(deadly, same_run, tmp_path):
    for mark in ("verifier", "service"):
        (tmp_path / mark).touch()
    inline = deadly("inline")
    inline.whole()
    for mark in ("verifier", "service"):
        (tmp_path / mark).unlink()
    ray = deadly("ray", *POOLS)
    output = ray.whole()
    assert "verifier" in output and "service-words 0 is replaced" in output
    same_run(ray, inline)
    last = ray.metrics()[-1]
    assert last["recovery/replaced_verifier"] == last["recovery/replaced_service-words"] == 1
