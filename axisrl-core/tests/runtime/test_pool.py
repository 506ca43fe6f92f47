import asyncio

import pytest

from axisrl.runtime.pool import GroupPlan, RolloutPool, gather_or_cancel
from axisrl.runtime.supervisor import Post
from axisrl.runtime.workers import Workers
from axisrl.types import SamplingParams, Task


class Worker:
    """Plays what it is asked, the last one first."""

    def __init__(self):
        self.played = []

    async def call(self, method, request):
        await asyncio.sleep(0.001 * (5 - request.member))
        self.played.append(request.id)
        return request


def plans(*sizes):
    return [
        GroupPlan(number=10 + i, task=Task(id=f"t{i}", data={}), size=size)
        for i, size in enumerate(sizes)
    ]


def test_results_come_back_in_dispatch_order_whatever_finished_first():
    heard = []
    workers = Workers([Post("rollout 0", Worker())])
    pool = RolloutPool(workers, lambda summary, done, total: heard.append((done, total)))
    groups = asyncio.run(pool.play("train", plans(3, 2), SamplingParams()))
    assert [[one.id for one in group] for group in groups] == [
        ["train-000010-000", "train-000010-001", "train-000010-002"],
        ["train-000011-000", "train-000011-001"],
    ]
    assert heard == [(n, 5) for n in range(1, 6)]


def test_a_group_stays_on_one_worker_and_groups_are_spread():
    workers = [Worker(), Worker()]
    pool = RolloutPool(Workers([Post("", one) for one in workers]), lambda *_: None)
    asyncio.run(pool.play("eval", plans(2, 2, 2), SamplingParams()))
    groups = [{name[:11] for name in worker.played} for worker in workers]
    assert groups == [{"eval-000010", "eval-000012"}, {"eval-000011"}]


def test_an_error_ends_the_others_before_it_is_raised():
    ended = []

    async def fail():
        raise RuntimeError("dead worker")

    async def wait():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def both():
        await gather_or_cancel([wait(), fail()])

    with pytest.raises(RuntimeError, match="dead worker"):
        asyncio.run(both())
    assert ended == [True]
