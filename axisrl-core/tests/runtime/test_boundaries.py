"""Whose failure it is, and when a wait is over."""

import asyncio
import contextlib

import pytest

from axisrl.errors import (
    ConfigError,
    EngineFailure,
    EnvFailure,
    HarnessFailure,
    ServiceFailure,
    VerifierFailure,
)
from axisrl.runtime import boundaries
from axisrl.runtime.boundaries import at, in_time, inside, outcome_of
from axisrl.types import Outcome


def test_a_failure_keeps_its_kind_in_a_subclass():
    class NoSandbox(HarnessFailure):
        pass

    assert outcome_of(NoSandbox("gone")) is Outcome.HARNESS_ERROR
    assert outcome_of(EnvFailure("broken")) is Outcome.ENV_ERROR


def test_what_a_block_raises_is_its_boundarys_failure_and_names_what_broke():
    named = pytest.raises(VerifierFailure, match=r"^verifier v: KeyError: 'rubric'$")
    with named, inside("verifier", "verifier v"):
        raise KeyError("rubric")
    with pytest.raises(EngineFailure, match=r"^engine: OSError: down$"), inside("engine"):
        raise OSError("down")


@pytest.mark.parametrize(
    ("boundary", "failure"), [("env", EnvFailure), ("verifier", VerifierFailure)]
)
def test_a_services_failure_is_charged_to_whoever_called_it(boundary, failure):
    async def calls():
        raise ServiceFailure("service wiki, search gave no answer within 1 s")

    with pytest.raises(failure, match="service wiki, search gave no answer within 1 s"):
        asyncio.run(at(boundary, calls()))


@pytest.mark.parametrize("error", [EnvFailure("its own"), ConfigError("no such judge")])
def test_a_failure_of_its_own_and_what_is_wrong_for_every_rollout_pass_as_they_are(error):
    with pytest.raises(type(error)) as caught, inside("verifier"):
        raise error
    assert caught.value is error


def test_work_that_is_late_is_cancelled_where_it_runs():
    ended = []

    async def late():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(VerifierFailure, match="too late"):
        asyncio.run(in_time(late(), 0.01, VerifierFailure("too late")))
    assert ended == [True]


def test_a_timeout_of_the_works_own_is_not_the_deadlines():
    async def times_out():
        raise TimeoutError("the judge's own")

    with pytest.raises(TimeoutError, match="the judge's own"):
        asyncio.run(in_time(times_out(), 1.0, VerifierFailure("too late")))


def test_work_that_will_not_be_cancelled_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(boundaries, "_LETTING_GO_S", 0.01)

    async def stubborn(over):
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()

    async def whole():
        over = asyncio.Event()
        with pytest.raises(VerifierFailure, match="too late"):
            await in_time(stubborn(over), 0.01, VerifierFailure("too late"))
        over.set()

    asyncio.run(whole())


def test_work_that_cancels_itself_failed_and_its_caller_goes_on():
    async def cancels_itself():
        raise asyncio.CancelledError

    async def whole():
        with pytest.raises(VerifierFailure, match="verifier: RuntimeError: it cancelled itself"):
            await at("verifier", in_time(cancels_itself(), 1.0, VerifierFailure("too late")))
        return "on"

    assert asyncio.run(whole()) == "on"


def test_a_cancelled_caller_cancels_the_work():
    ended = []

    async def works():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def whole():
        caller = asyncio.ensure_future(in_time(works(), 60.0, VerifierFailure("too late")))
        await asyncio.sleep(0.01)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        return list(ended)

    assert asyncio.run(whole()) == [True]
