"""The simulated long tail: a clock that jumps, so nothing here is timed."""

import asyncio
import functools
import importlib

import pytest


def module(name):
    return importlib.import_module(name)  # the folder is on the path inside tests alone


@functools.cache
def simulated(tail=10.0, windows=200, staleness=12):
    """Schedule -> what came of it."""
    bench = module("long_tail")
    workload = bench.Workload(tail=tail, windows=windows)
    plans = bench.schedules(staleness)
    return {name: bench.simulate(workload, plan) for name, plan in plans.items()}


def rate(one):
    return one.tokens / one.seconds


def test_interrupted_rollouts_keep_generation_near_its_bound():
    best = simulated()["async, partial: resume"]
    assert best.bound / best.seconds > 0.9


def test_it_trains_on_more_than_twice_the_tokens_of_a_synchronous_run():
    found = simulated()
    assert rate(found["async, partial: resume"]) > 2 * rate(found["sync"])


def test_with_room_enough_no_token_is_too_old():
    assert simulated()["async, partial: resume"].over_age == 0


def test_no_schedule_beats_the_bound():
    assert all(one.seconds >= one.bound for one in simulated().values())


def test_without_a_tail_a_synchronous_run_is_not_far_behind():
    found = simulated(tail=1.0, windows=50, staleness=2)
    assert rate(found["async, partial: resume"]) < 2.5 * rate(found["sync"])


def test_the_virtual_clock_jumps_and_a_standstill_is_an_error():
    run_virtual = module("virtual_time").run_virtual

    async def day():
        await asyncio.sleep(86_400)
        return "over"

    assert run_virtual(day()) == ("over", 86_400)
    with pytest.raises(RuntimeError, match="stands still"):
        run_virtual(asyncio.Event().wait())
