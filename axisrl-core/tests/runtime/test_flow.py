"""Generation beside learning: capacity, staleness, conservation, resume."""

import asyncio

import pytest

from axisrl.config.schema import (
    ModelConfig,
    RolloutConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
    Use,
)
from axisrl.errors import RunFailed
from axisrl.runtime.flow import RolloutFlow
from axisrl.runtime.sampler import TaskSampler
from axisrl.types import Outcome, RolloutSummary, StoreStats, Task

ANY = Use(use="x")


class Tasks:
    def __len__(self):
        return 100

    def __getitem__(self, index):
        return Task(id=str(index), data={})


class Store:
    bytes = 0

    async def stats(self):
        return StoreStats(items=1, bytes=self.bytes)


class Pool:
    """Plays a group when it is let: ``home(number)``."""

    def __init__(self):
        self.started, self.doors, self.version = [], {}, 0
        self.reward, self.cancelled = lambda number, member: float(member), 0

    async def play(self, stream, plans, sampling):
        (plan,) = plans
        self.started.append((plan.number, plan.task.id))
        version = self.version
        door = self.doors.setdefault(plan.number, asyncio.Event())
        try:
            await door.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return [[self.one(plan, member, version) for member in range(plan.size)]]

    def one(self, plan, member, version):
        reward = self.reward(plan.number, member)
        return RolloutSummary(
            id=f"{plan.number}-{member}",
            task_id=plan.task.id,
            group=plan.number,
            member=member,
            outcome=Outcome.COMPLETED if reward is not None else Outcome.ENGINE_ERROR,
            reward=reward,
            versions=(version, self.version),
        )

    def home(self, *numbers):
        for number in numbers:
            self.doors.setdefault(number, asyncio.Event()).set()


def flow(pool, store=None, zero_std="keep", limit=0.5, **schedule):
    """Windows of two groups of two."""
    config = RunConfig(
        model=ModelConfig(name="m"),
        dataset=ANY,
        env=ANY,
        advantage=ANY,
        loss=ANY,
        engine=ANY,
        trainer=ANY,
        rollout=RolloutConfig(group_size=2, max_failed_fraction=limit),
        train=TrainConfig(updates=4, batch_size=4, zero_std_groups=zero_std),
        schedule=ScheduleConfig(kind="async", **schedule),
    )
    sampler = TaskSampler(Tasks(), 0, config.sampler)
    return RolloutFlow(config, pool, sampler, store or Store())


def synced(one, pool, version):
    one.version = pool.version = version


async def numbers(one):
    return [group.group for group in (await one.collect()).groups]


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_window_is_the_first_groups_that_are_home():
    async def run():
        pool = Pool()
        one = flow(pool)
        pool.home(3, 1)
        assert await numbers(one) == [1, 3]
        await one.close()

    asyncio.run(run())


@pytest.mark.parametrize(("staleness", "groups"), [(0, 2), (1, 4), (3, 8)])
def test_no_group_is_started_that_would_be_too_old_in_its_turn(staleness, groups):
    async def run():
        pool = Pool()
        one = flow(pool, max_staleness=staleness)
        pool.home(0, 1)
        await numbers(one)
        assert len(pool.started) == groups
        synced(one, pool, 1)
        pool.home(2, 3)
        await numbers(one)
        assert len(pool.started) == groups + 2
        await one.close()

    asyncio.run(run())


def test_generation_goes_on_while_nobody_collects():
    async def run():
        pool = Pool()
        one = flow(pool, max_staleness=1)
        pool.home(0, 1)
        await numbers(one)
        pool.home(2, 3)
        await settled()
        synced(one, pool, 1)
        assert await asyncio.wait_for(numbers(one), 1) == [2, 3]
        await one.close()

    asyncio.run(run())


def test_a_dropped_group_makes_room_for_another():
    async def run():
        pool = Pool()
        pool.reward = lambda number, member: 1.0 if number == 0 else float(member)
        one = flow(pool, zero_std="drop", max_staleness=0)
        pool.home(0, 1, 2)
        assert await numbers(one) == [1, 2]
        assert len(pool.started) == 3
        await one.close()

    asyncio.run(run())


def test_groups_in_flight_can_be_bounded():
    async def run():
        pool = Pool()
        one = flow(pool, max_staleness=9, max_groups=3)
        pool.home(0, 1)
        await numbers(one)
        assert len(pool.started) <= 4
        await one.close()

    asyncio.run(run())


def test_a_full_store_starts_nothing_more_until_something_is_home():
    async def run():
        pool, store = Pool(), Store()
        store.bytes = 5 << 20
        one = flow(pool, store, max_staleness=9, max_store_mib=4)
        pool.home(0, 1)
        assert await numbers(one) == [0, 1]
        assert [number for number, _ in pool.started] == [0, 1]
        await one.close()

    asyncio.run(run())


def test_rollouts_with_tokens_that_are_too_old_are_left_out_and_counted():
    async def run():
        pool = Pool()
        one = flow(pool, max_staleness=1, over_age="drop")
        pool.home(0, 1)
        await numbers(one)
        synced(one, pool, 2)  # groups 2 and 3 were started at version 0
        pool.home(2, 3, 4, 5)
        window = await one.collect()
        assert [group.group for group in window.groups] == [4, 5]
        assert window.metrics["rollout/over_age_rollouts"] == 4
        await one.close()

    asyncio.run(run())


def test_staleness_is_measured_from_the_oldest_token():
    async def run():
        pool = Pool()
        one = flow(pool, max_staleness=3)
        pool.home(0, 1)
        await numbers(one)
        synced(one, pool, 2)
        pool.home(2, 3)
        window = await one.collect()
        assert window.metrics["rollout/staleness_max"] == 2
        await one.close()

    asyncio.run(run())


def test_a_resumed_flow_plays_the_open_groups_again_and_none_twice():
    async def run():
        pool = Pool()
        one = flow(pool, max_staleness=1)
        pool.home(0, 2)
        first = await numbers(one)
        state, started = one.state_dict(), dict(pool.started)
        await one.close()
        again = Pool()
        other = flow(again, max_staleness=1)
        other.load_state_dict(state)
        synced(other, again, 1)
        again.home(1, 3)
        second = await numbers(other)
        assert (first, second) == ([0, 2], [1, 3])
        assert [pair for pair in again.started if pair[0] in started] == [
            (number, started[number]) for number in (1, 3)
        ]
        assert 0 not in dict(again.started) and 2 not in dict(again.started)
        await other.close()

    asyncio.run(run())


def test_started_is_trained_plus_dropped_plus_open_whatever_the_order():
    async def run():
        pool = Pool()
        pool.reward = lambda number, member: 1.0 if number % 3 == 0 else float(member)
        one = flow(pool, zero_std="drop", max_staleness=2)
        pool.home(*range(0, 60, 2), *range(1, 60, 2))
        trained = dropped = 0
        for version in range(1, 6):
            window = await one.collect()
            trained += len(window.groups)
            dropped += window.dropped.total()
            await settled()
            synced(one, pool, version)
            assert len(pool.started) == trained + dropped + len(one.state_dict()["open"])
        await one.close()

    asyncio.run(run())


def test_too_many_failures_end_the_run():
    async def run():
        pool = Pool()
        pool.reward = lambda number, member: None
        one = flow(pool, limit=0.3)
        pool.home(0)
        with pytest.raises(RunFailed, match=r"over rollout\.max_failed_fraction"):
            await one.collect()
        await one.close()

    asyncio.run(run())


def test_closing_ends_what_is_played():
    async def run():
        pool = Pool()
        one = flow(pool, max_staleness=1)
        pool.home(0, 1)
        await numbers(one)
        await settled()
        await one.close()
        assert pool.cancelled == 2

    asyncio.run(run())
