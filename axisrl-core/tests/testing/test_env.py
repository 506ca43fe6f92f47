"""Each check of EnvSuite catches an environment that breaks its promise."""

import asyncio
import itertools
import subprocess
import sys
from typing import ClassVar

import pytest

from axisrl.testing import EnvCase, EnvSuite
from axisrl.testing import env as checks
from axisrl.testing.fakes import EchoEnv, EchoEnvConfig
from axisrl.types import Message, Observation, StepResult, Task

CASE = EnvCase(
    use="toy/echo",
    task=Task(id="count-3", data={"question": "Say 3.", "answer": "3"}),
    actions=("I think", "3"),
    required=("question", "answer"),
)


class Good(EchoEnv):
    def __init__(self, context):
        super().__init__(EchoEnvConfig(), context)


class SaysNothing(Good):
    async def reset(self, task):
        await super().reset(task)
        return Observation(messages=())


class NeverEnds(Good):
    async def step(self, action):
        self._done = False
        return StepResult(observation=Observation(messages=(Message(role="user", content="?"),)))


class EndsAtOnce(Good):
    async def step(self, action):
        await super().step(action)
        self._done = True
        return StepResult(done=True)


class LeavesThePolicyWithoutAnAnswer(Good):
    async def step(self, action):
        result = await super().step(action)
        return StepResult(done=result.done)


class HandsOutObjects(Good):
    async def step(self, action):
        result = await super().step(action)
        return StepResult(observation=result.observation, done=result.done, info={"env": self})


class PaysNaN(Good):
    async def step(self, action):
        result = await super().step(action)
        return StepResult(
            observation=result.observation, done=result.done, reward_parts={"said": float("nan")}
        )


class ShowsATicket(Good):
    tickets = itertools.count()

    async def reset(self, task):
        await super().reset(task)
        text = f"ticket {next(self.tickets)}"
        return Observation(messages=(Message(role="user", content=text),))


class SharesItsEpisode(Good):
    seen: ClassVar = []

    async def reset(self, task):
        self.seen.clear()
        return await super().reset(task)

    async def step(self, action):
        self.seen.append(action.text)
        await asyncio.sleep(0)
        result = await super().step(action)
        return StepResult(
            observation=result.observation,
            done=result.done,
            reward_parts={"said": float(len(self.seen))},
        )


class GoesOnAfterTheEnd(Good):
    async def step(self, action):
        return StepResult(done=True) if self._done else await super().step(action)


class ClosesOnce(Good):
    async def close(self):
        if self.closed:
            raise RuntimeError("already closed")
        await super().close()


class RaisesAtAPolicyFault(Good):
    async def step(self, action):
        if "<tool_call>" in action.text:
            raise ValueError("not a tool call")
        return await super().step(action)


class RunsAShell(Good):
    async def step(self, action):
        if "touch" in action.text and "#" not in action.text:
            process = await asyncio.create_subprocess_exec(
                "sh", "-c", f'echo "{action.text}"', stdout=asyncio.subprocess.DEVNULL
            )
            await process.wait()
        return await super().step(action)


class AnswersNothing(Good):
    async def step(self, action):
        result = await super().step(action)
        return result if action.text else StepResult()


class InventsFields(Good):
    async def reset(self, task):
        return await super().reset(
            Task(id=task.id, data={"answer": "", "question": "?"} | task.data)
        )


class LeavesATask(Good):
    async def step(self, action):
        self.task = asyncio.get_running_loop().create_task(asyncio.Event().wait(), name="stray")
        return await super().step(action)


class LeavesAProcess(Good):
    processes: ClassVar = []

    async def step(self, action):
        code = "import time; time.sleep(30)"
        self.processes.append(subprocess.Popen([sys.executable, "-c", code]))
        return await super().step(action)


BROKEN = [
    (checks.an_episode_ends_where_the_case_says, SaysNothing, "without messages"),
    (checks.an_episode_ends_where_the_case_says, NeverEnds, "goes on after all 2 actions"),
    (checks.an_episode_ends_where_the_case_says, EndsAtOnce, "ended after 1 of 2 actions"),
    (
        checks.an_episode_ends_where_the_case_says,
        LeavesThePolicyWithoutAnAnswer,
        "action 1 got no observation",
    ),
    (checks.results_are_json_and_finite, HandsOutObjects, "the info of step 1 is not JSON"),
    (checks.results_are_json_and_finite, PaysNaN, "'said' is nan"),
    (checks.same_seed_same_episode, ShowsATicket, "episodes with the same seed"),
    (checks.eight_at_once_do_not_mix, SharesItsEpisode, "concurrent episode 0 differs"),
    (checks.stepping_after_the_end_raises, GoesOnAfterTheEnd, "did not raise RuntimeError"),
    (checks.a_policy_fault_never_raises, RaisesAtAPolicyFault, "raised ValueError: not a tool"),
    (checks.a_policy_fault_never_raises, RunsAShell, "was executed"),
    (checks.a_policy_fault_never_raises, AnswersNothing, "neither an observation nor an end"),
    (checks.a_missing_field_raises_at_reset, InventsFields, "without 'question'"),
    (checks.cancellation_leaves_nothing_behind, LeavesATask, "asyncio tasks still run.*stray"),
]


def test_a_good_env_passes_every_check(trial):
    trial.passes(EnvSuite, CASE, Good)


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_env_is_caught(trial, check, make, told):
    trial.fails(check, CASE, make, told)


def test_an_env_that_can_be_closed_only_once_is_caught(trial):
    with pytest.raises(RuntimeError, match="already closed"):
        trial(checks.close_is_idempotent_at_any_time, CASE, ClosesOnce)


def test_every_check_catches_something():
    caught = {check for check, _, _ in BROKEN} | {checks.close_is_idempotent_at_any_time}
    assert caught == set(EnvSuite.checks)


@pytest.mark.skipif(sys.platform != "linux", reason="child processes are read from /proc")
def test_an_env_that_leaves_a_process_is_caught(trial):
    try:
        trial.fails(
            checks.cancellation_leaves_nothing_behind, CASE, LeavesAProcess, "processes are left"
        )
    finally:
        for process in LeavesAProcess.processes:
            process.kill()
            process.wait()
