import asyncio

from axisrl.testing.fakes import FakeClock


def test_time_stands_still_until_it_is_moved():
    clock = FakeClock(start=5.0)
    assert (clock(), clock()) == (5.0, 5.0)
    clock.advance(1.5)
    assert clock() == 6.5


def test_sleepers_wake_in_order_of_their_time():
    async def scene():
        clock, woken = FakeClock(), []

        async def sleeper(seconds):
            await clock.sleep(seconds)
            woken.append(seconds)

        tasks = [asyncio.ensure_future(sleeper(seconds)) for seconds in (3, 1, 2)]
        await asyncio.sleep(0)
        clock.advance(1)
        await asyncio.wait(tasks, timeout=0.01)
        assert woken == [1]
        clock.advance(2)
        await asyncio.gather(*tasks)
        return woken

    assert sorted(asyncio.run(scene())) == [1, 2, 3]


def test_sleeping_no_time_returns_at_once():
    asyncio.run(asyncio.wait_for(FakeClock().sleep(0), 1))
