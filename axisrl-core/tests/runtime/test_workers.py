"""Pitfall 11: what takes a worker down costs its own rollout, and siblings survive."""

import asyncio
import logging

import pytest

from axisrl.errors import ActorGone, RunFailed
from axisrl.runtime.rollout import RolloutRequest
from axisrl.runtime.workers import Workers
from axisrl.types import Outcome, RolloutSummary, SamplingParams, Task


def request(group, member=0):
    return RolloutRequest(
        stream="train",
        task=Task(id=f"task-{group}", data={}),
        group=group,
        member=member,
        sampling=SamplingParams(),
    )


class Worker:
    """Dies of the rollouts in ``deadly``, and hangs in those in ``hanging``, with all it has."""

    def __init__(self, deadly=(), hanging=()):
        self.deadly, self.hanging = deadly, hanging
        self.gone = asyncio.Event()
        self.hangs = False
        self.played = []

    async def call(self, method, *args):
        if method == "ping":
            if self.hangs:
                await asyncio.Event().wait()
            return True
        (wanted,) = args
        self.played.append(wanted.id)
        if wanted.group in self.hanging:
            self.hangs = True
            await self.gone.wait()
        if wanted.group in self.deadly:
            self.gone.set()
        await asyncio.sleep(0)
        if self.gone.is_set():
            raise ActorGone("the worker is gone")
        return RolloutSummary(
            id=wanted.id,
            task_id=wanted.task.id,
            group=wanted.group,
            member=wanted.member,
            outcome=Outcome.COMPLETED,
            reward=1.0,
        )

    def kill(self):
        self.gone.set()


def play(requests, *, restarts=10, slots=1, lease_s=60.0, **kinds):
    """Summaries by group, the Workers, and every worker there was."""
    crew = []

    async def run():
        def make():
            crew.append(Worker(**kinds))
            return crew[-1]

        async def hire(slot):
            return make()

        workers = Workers([make() for _ in range(slots)], hire, restarts=restarts, lease_s=lease_s)
        found = await asyncio.gather(*(workers.play(one) for one in requests))
        return {one.group: one for one in found}, workers

    found, workers = asyncio.run(run())
    return found, workers, crew


def test_rollouts_of_a_worker_that_died_are_played_again_by_another():
    found, workers, crew = play([request(0), request(1), request(2)], deadly={1})
    assert found[0].reward == found[2].reward == 1.0
    assert workers.replaced == len(crew) - 1
    assert workers.reissued >= 1


def test_a_rollout_that_keeps_taking_workers_down_is_given_up_and_its_task_named(caplog):
    with caplog.at_level(logging.WARNING):
        found, workers, _ = play([request(0), request(1), request(2)], deadly={1})
    assert found[1].outcome == Outcome.HARNESS_ERROR
    assert found[1].error == "given up: it took down 3 workers"
    assert "task task-1 is quarantined" in caplog.text
    assert workers.replaced == 3


def test_a_quarantined_task_is_not_played_again():
    async def run():
        crew = [Worker(deadly={1})]

        async def hire(slot):
            crew.append(Worker(deadly={1}))
            return crew[-1]

        workers = Workers(crew[:1], hire, restarts=10)
        await workers.play(request(1))
        count = len(crew)
        again = await workers.play(request(1, member=1))
        return again, count, len(crew)

    again, before, after = asyncio.run(run())
    assert (again.outcome, again.error) == ("harness_error", "given up: its task is quarantined")
    assert before == after


def test_a_used_up_budget_ends_the_run_with_the_reason():
    with pytest.raises(RunFailed, match=r"rollout\.worker_restarts 1 is used up: the worker is"):
        play([request(1)], deadly={1}, restarts=1)


def test_a_worker_that_does_not_answer_is_ended_and_its_rollouts_go_on():
    found, workers, crew = play([request(0), request(1)], hanging={1}, lease_s=0.02)
    assert found[0].reward == 1.0
    assert found[1].outcome == Outcome.HARNESS_ERROR
    assert workers.replaced == len(crew) - 1 == 3


def test_workers_in_this_process_only_play():
    async def run():
        workers = Workers([Worker()])
        return await workers.play(request(0)), workers

    summary, workers = asyncio.run(run())
    assert summary.reward == 1.0
    assert workers.replaced == 0
