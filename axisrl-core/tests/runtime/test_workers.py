"""Pitfall 11: what takes a worker down costs its own rollout, and siblings survive."""

import asyncio
import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest

from axisrl.builtin.memory_handles import MemoryHandleStore
from axisrl.config.base import NoConfig
from axisrl.errors import ActorGone, ConfigError, StoreLost
from axisrl.runtime.rollout import RolloutRequest
from axisrl.runtime.supervisor import Post
from axisrl.runtime.workers import Workers
from axisrl.types import BuildContext, Handle, Outcome, RolloutSummary, SamplingParams, Task


def request(group, member=0):
    return RolloutRequest(
        stream="train",
        task=Task(id=f"task-{group}", data={}),
        group=group,
        member=member,
        sampling=SamplingParams(),
    )


TRACE = Handle(store="s", key="k", shape=(1,), dtype="|u1", owner="o", checksum=0)


class Worker:
    """Dies of the rollouts in ``deadly`` with all it has, and another one takes its place."""

    def __init__(self, deadly, post=None):
        self.deadly, self.post = deadly, post
        self.gone = False
        self.at_once = self.most = 0

    async def call(self, method, wanted):
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        if wanted.group in self.deadly and not self.gone:
            self.gone = True
            self.post.fill(type(self)(self.deadly, self.post))
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.gone:
            raise ActorGone("the worker is gone")
        return played(wanted)


def played(wanted):
    return RolloutSummary(
        id=wanted.id,
        task_id=wanted.task.id,
        group=wanted.group,
        member=wanted.member,
        outcome=Outcome.COMPLETED,
        reward=1.0,
        trace=TRACE,
    )


def staffed(*, deadly=(), slots=1):
    """Workers, and the list of all that were ever there."""
    posts, all_of_them = [], []
    for slot in range(slots):
        worker = Worker(deadly)
        post = worker.post = Post(f"rollout {slot}", worker)
        fill = post.fill
        post.fill = lambda new, fill=fill: (all_of_them.append(new), fill(new))
        posts.append(post)
        all_of_them.append(worker)
    return Workers(posts), all_of_them


def play(requests, **kinds):
    """Summaries by group, the Workers, and every worker there was."""

    async def run():
        workers, crew = staffed(**kinds)
        found = await asyncio.gather(*(workers.play(one) for one in requests))
        return {one.group: one for one in found}, workers, crew

    return asyncio.run(run())


def test_rollouts_of_a_worker_that_died_are_played_again_by_its_successor():
    found, workers, crew = play([request(0), request(1), request(2)], deadly={1})
    assert found[0].reward == found[2].reward == 1.0
    assert len(crew) > 1
    assert workers.reissued >= 1


def test_what_a_worker_that_is_gone_kept_of_a_rollout_is_freed_and_nothing_else():
    async def run():
        store = MemoryHandleStore(NoConfig(), BuildContext(run_dir=Path()))
        posts = [Post("rollout 0", None), Post("rollout 1", None)]

        class Keeps(Worker):
            async def call(self, method, wanted):
                await store.put(np.ones(1), owner=wanted.owner(1))
                return await super().call(method, wanted)

        posts[1].fill(Keeps({3}, posts[1]))
        workers, last = Workers(posts, store), request(3)
        await workers.play(request(1))
        await workers.play(last)
        return await store.release_owner(last.owner(1)), (await store.stats()).items

    assert asyncio.run(run()) == (0, 1)


def test_a_rollout_that_keeps_taking_workers_down_is_given_up_and_its_task_named(caplog):
    with caplog.at_level(logging.WARNING):
        found, workers, crew = play([request(0), request(1), request(2)], deadly={1})
    assert found[1].outcome == Outcome.HARNESS_ERROR
    assert found[1].error == "given up: it took down 3 workers"
    assert "task task-1 is quarantined" in caplog.text
    assert workers.quarantined == ["task-1"]
    assert len(crew) == 4


def test_two_deadly_rollouts_do_not_take_an_innocent_one_with_them():
    found, _, _ = play([request(number) for number in range(6)], deadly={1, 4})
    lost = {group for group, one in found.items() if one.outcome == Outcome.HARNESS_ERROR}
    assert lost == {1, 4}


def test_what_was_lost_once_is_played_again_at_once_and_only_then_alone():
    _, _, crew = play([request(number) for number in range(6)], deadly={1})
    assert [worker.most for worker in crew[:3]] == [6, 6, 1]


def test_a_quarantined_task_is_not_played_again():
    async def run():
        workers, crew = staffed(deadly={1})
        await workers.play(request(1))
        count = len(crew)
        again = await workers.play(request(1, member=1))
        return again, count, len(crew)

    again, before, after = asyncio.run(run())
    assert (again.outcome, again.error) == ("harness_error", "given up: its task is quarantined")
    assert before == after


def test_a_task_that_was_quarantined_before_the_run_was_resumed_still_is():
    async def run():
        workers, crew = staffed(deadly={1})
        workers.quarantine(["task-1"])
        return await workers.play(request(1)), len(crew)

    summary, count = asyncio.run(run())
    assert (summary.error, count) == ("given up: its task is quarantined", 1)


def answered(answer):
    """What becomes of a rollout whose worker gives this answer, or raises it."""

    class Odd:
        async def call(self, method, wanted):
            if isinstance(answer, Exception):
                raise answer
            return answer(played(wanted))

    return asyncio.run(Workers([Post("rollout 0", Odd())]).play(request(1)))


def changed(**fields):
    return lambda summary: dataclasses.replace(summary, **fields)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ValueError("no such index"), "raised ValueError: no such index"),
        (lambda summary: {"reward": 1.0}, "answered with a dict, which is no summary"),
        (lambda summary: None, "answered with a NoneType, which is no summary"),
        (changed(id="train-000009-000"), "answered with train-000009-000, which was not asked for"),
        (changed(member=3), "answered with train-000001-000, which was not asked for"),
        (changed(reward=float("nan")), "answered with the reward nan"),
        (changed(reward=None), "answered with no reward for a rollout that ended well"),
        (changed(outcome=Outcome.TIMEOUT), "answered with a reward for outcome timeout"),
        (changed(trace=None), "answered with a reward for a rollout without tokens"),
    ],
)
def test_a_worker_that_raises_or_answers_garbage_costs_that_rollout_alone(answer, why):
    lost = answered(answer)
    assert (lost.id, lost.outcome, lost.reward) == ("train-000001-000", "harness_error", None)
    assert lost.error == f"given up: rollout 0 {why}"


@pytest.mark.parametrize("error", [ConfigError("wrong option"), StoreLost("nothing is kept")])
def test_what_is_wrong_for_every_rollout_is_raised(error):
    with pytest.raises(type(error), match=error.message):
        answered(error)
