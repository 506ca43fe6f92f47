"""Verifiers and rewards in processes of their own judge exactly as they do in the worker."""

import asyncio
import dataclasses
import os
import pickle
import signal
from pathlib import Path

import numpy as np
import pytest

from axisrl.config.schema import PlacementConfig
from axisrl.errors import EnvironmentProblem, VerifierFailure
from axisrl.runtime.calls import Call, PromptHandle
from axisrl.runtime.judges import RewardActor, RoutedJudges, VerifierActor
from axisrl.runtime.placement import InlinePlacement, RayPlacement
from axisrl.runtime.router import Router
from axisrl.runtime.staff import Kind, Staff
from axisrl.runtime.supervisor import RestartBudget, Supervisor
from axisrl.testing.verifier import rollout_of
from axisrl.trace import Trace
from axisrl.types import GenerateResult, ModelSpec, SamplingParams, Task, Verdict

JUDGES = Path(__file__).with_name("judges.py")
TASK = Task(id="two", data={"question": "Say 2.", "answer": "2"})


def rollout(*answers, tokens=3):
    """A rollout whose trace holds a model call of ``tokens`` tokens."""
    trace = Trace()
    prompt = trace.append("prompt", [1, 2], parent=None)
    column = np.arange(tokens, dtype=np.int32)
    said = GenerateResult(
        ids=column, logprobs=-column.astype(np.float32), versions=column, finish_reason="stop"
    )
    trace.append_sampled(said, parent=prompt, sampling=SamplingParams(), seed=7)
    return dataclasses.replace(rollout_of(TASK, *answers), trace=trace, info={"n": np.ones(2)})


@pytest.fixture
def boot(stage):
    """``boot(*overrides)``: of an actor that judges."""

    def boot(*overrides):
        return stage.boot(*overrides, role="verifier", plugins=[JUDGES])

    return boot


class Worker:
    """What a rollout worker is to the staff: it calls verifiers through a router."""

    def __init__(self, peers, grace_s):
        self.grace_s, self.pid = grace_s, 0
        self.router = Router("verifier", [self.prompt(peer) for peer in peers["verifier"]])

    def prompt(self, peer):
        return PromptHandle(peer, self.grace_s)

    async def call(self, method, kind, rank, peer):
        assert method == "connect"
        self.router.connect(rank, self.prompt(peer))


def judged(boot, work, actor=VerifierActor, grace_s=2.0):
    """``work(judges, recoveries)`` with one Ray process that judges, and is replaced when it is
    gone; nothing is paid for that."""

    async def whole():
        placement = RayPlacement(PlacementConfig(kind="ray"))
        supervisor, staff = Supervisor(RestartBudget(0), 60.0, 60.0), Staff(placement)

        async def spawn(rank, peers):
            return await placement.spawn(actor, boot, peers)

        async def ready(rank, handle):
            pass

        async def hire(rank, peers):
            return Worker(peers, grace_s)

        try:
            await staff.place("verifier", 1, Kind(spawn=spawn, start=ready, pooled=True))
            await staff.employ(1, hire)
            staff.watched_by(supervisor)
            limit_s = boot.config.rollout.score_timeout_s
            judges = RoutedJudges(staff.workers[0].handle.router, limit_s)
            return await supervisor.guard(work(judges, supervisor.budget.recoveries))
        finally:
            await supervisor.close()
            await placement.close()

    return asyncio.run(whole())


def test_a_rollout_crosses_processes_token_for_token():
    one = rollout("1", "2", tokens=50_000)
    other = pickle.loads(pickle.dumps(one))
    for mine, theirs in zip(one.trace, other.trace, strict=True):
        for name in ("ids", "logprobs", "versions"):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name))
        assert (mine.kind, mine.seed, mine.sampling) == (theirs.kind, theirs.seed, theirs.sampling)
    assert (other.messages, other.task, other.answer) == (one.messages, one.task, "2")


def test_an_actor_judges_in_its_own_process_with_the_environment_found_there(boot):
    placement = InlinePlacement(store=None)

    async def work():
        actor = await placement.spawn(VerifierActor, boot(), {})
        call = Call(name="exact", args=(rollout("2"),), limit_s=1.0)
        return await actor.call("answer", call)

    verdict = asyncio.run(work())
    assert (verdict.score, verdict.passed) == (1.0, True)


def test_a_judge_that_asks_for_no_tokenizer_does_not_wait_for_one(boot, tmp_path):
    without = ModelSpec(name="none", path=tmp_path / "no model")
    actor = VerifierActor(dataclasses.replace(boot(), model=without), None, {})
    assert "tokenizer" in actor.services
    for ask in (lambda: actor.services["tokenizer"], lambda: actor.services.get("tokenizer")):
        with pytest.raises(EnvironmentProblem, match="no tokenizer can be read from"):
            ask()


def test_a_tokenizer_that_is_asked_for_is_read_once(boot):
    actor = VerifierActor(boot(), None, {})
    assert actor.services.get("tokenizer").encode("Say 2.")
    assert actor.services["tokenizer"] is actor.services.get("tokenizer")
    assert actor.services.get("another", "none") == "none"


def test_verdicts_and_failures_of_another_process_are_those_of_this_one(local_ray, boot):
    async def work(judges, recoveries):
        scores = [(await judges.verify("exact", rollout(said))).score for said in "23"]
        with pytest.raises(VerifierFailure, match=r"^verifier odd: RuntimeError: verifier bug$"):
            await judges.verify("odd", rollout("2"))
        # Cancelled where it runs: the process lives.
        with pytest.raises(VerifierFailure, match=r"^verifier late gave no verdict within 0.2 s$"):
            await judges.verify("late", rollout("2"))
        scores.append((await judges.verify("exact", rollout("2"))).score)
        return scores, recoveries.total()

    odd = ("verifiers.odd=stage/odd", "verifiers.late={use: stage/odd, how: hangs}")
    found = judged(boot(*odd, "rollout.score_timeout_s=0.2"), work, grace_s=30.0)
    assert found == ([1.0, 0.0, 1.0], 0)


def test_a_reward_of_another_process_gets_rollout_and_verdicts(local_ray, boot):
    async def work(judges, recoveries):
        verdicts = {"exact": Verdict(score=0.5)}
        return await judges.reward("main", rollout("2"), verdicts)

    result = judged(boot(), work, RewardActor)
    assert result.total == 0.5
    assert result.parts["exact"] == 0.5


def test_a_verifier_that_blocks_its_process_costs_its_own_rollout_and_no_other(local_ray, boot):
    async def work(judges, recoveries):
        blocked = judges.verify("blocks", rollout("2"))
        told, verdict = await asyncio.gather(
            blocked, judges.verify("exact", rollout("2")), return_exceptions=True
        )
        assert isinstance(told, VerifierFailure)
        assert told.message == (
            "verifier blocks gave no answer within 0.2 s and blocked its process, which was ended"
        )
        assert recoveries["replaced_verifier"] in (1, 2)
        return verdict.score

    blocks = ("verifiers.blocks=judges/blocks", "rollout.score_timeout_s=0.2")
    assert judged(boot(*blocks), work, grace_s=0.5) == 1.0


def test_a_verifier_process_that_is_killed_while_it_judges_is_asked_again(
    local_ray, boot, tmp_path
):
    async def work(judges, recoveries):
        asked = asyncio.ensure_future(judges.verify("gate", rollout("2")))
        while not (started := list(tmp_path.glob("*.pid"))):
            await asyncio.sleep(0.01)
        os.kill(int(started[0].stem), signal.SIGKILL)
        (tmp_path / "open").touch()
        return (await asked).score, recoveries

    boot = boot(f"verifiers.gate={{use: judges/gate, folder: {tmp_path}}}")
    assert judged(boot, work) == (1.0, {"replaced_verifier": 1})
