"""Whose failure it is, and when a wait is over."""

import asyncio

import pytest

from axisrl.errors import (
    ConfigError,
    EngineFailure,
    EnvFailure,
    HarnessFailure,
    ServiceFailure,
    VerifierFailure,
)
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
