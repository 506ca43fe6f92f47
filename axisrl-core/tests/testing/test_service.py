"""Each check of ServiceSuite catches a service that breaks its promise."""

import asyncio

import numpy as np
import pytest

from axisrl.plugins import ComponentRef
from axisrl.testing import EnvCase, ServiceCall, ServiceCase, ServiceSuite, Subject
from axisrl.testing import service as checks
from axisrl.testing.fakes import LocalService
from axisrl.types import Task

CASE = ServiceCase(
    use="toy/lookup",
    calls=(
        ServiceCall(method="lookup", args=("red",), answer={"hits": ("apple",)}),
        ServiceCall(method="vector", options={"of": "red"}, answer=np.ones(2, np.float32)),
    ),
    refused=(ServiceCall(method="lookup", args=(3,)),),
)
SKIPS = (checks.its_options_leave_those_of_the_run_alone,)


class Good:
    def __init__(self, context):
        self.words = None

    async def start(self):
        self.words = {"red": ("apple",)}

    async def lookup(self, word):
        await asyncio.sleep(0)
        if not isinstance(word, str):
            raise TypeError(f"{word!r} is no word")
        return {"hits": self.words[word]}

    async def vector(self, of):
        return np.ones(len(self.words[of]) + 1, np.float32)

    async def stop(self):
        self.words = None


class OtherAnswer(Good):
    async def lookup(self, word):
        await super().lookup(word)
        return {"hits": ["apple"]}


class OtherType(Good):
    async def vector(self, of):
        return (await super().vector(of)).astype(np.float64)


class MixesCalls(Good):
    async def lookup(self, word):
        self.last = word
        await asyncio.sleep(0)
        word, self.last = self.last, ""
        return await super().lookup(word)


class Remembers(Good):
    seen = ""

    async def lookup(self, word):
        self.seen = word
        return await super().lookup(word)

    async def vector(self, of):
        return np.ones(2 if self.seen else 1, np.float32)


class AnswersLive(Good):
    async def lookup(self, word):
        await super().lookup(word)
        return lambda: word


class TakesAnything(Good):
    async def lookup(self, word):
        return {"hits": ("apple",)}


class NeedsStart(Good):
    async def stop(self):
        self.words.clear()


BROKEN = [
    (
        checks.every_call_answers_as_the_case_says,
        OtherAnswer,
        r"lookup\('red'\) gave .*\['apple'\]",
    ),
    (checks.every_call_answers_as_the_case_says, OtherType, r"vector\(of='red'\) gave"),
    (checks.another_replica_answers_alike, Remembers, r"vector\(of='red'\) gave"),
    (checks.answers_cross_processes, AnswersLive, r"lookup\('red'\) gave what cannot be pickled"),
    (checks.refused_calls_raise, TakesAnything, r"lookup\(3\) was answered"),
]


def test_a_good_service_passes_every_check(trial):
    trial.passes(ServiceSuite, CASE, Good, skips=SKIPS)


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_service_is_caught(trial, check, make, told):
    trial.fails(check, CASE, make, told)


@pytest.mark.parametrize(
    ("check", "make"),
    [
        (checks.many_calls_at_once_do_not_mix, MixesCalls),
        (checks.it_can_be_stopped_twice_and_before_it_was_started, NeedsStart),
    ],
)
def test_a_service_that_raises_where_it_must_not_is_caught(trial, check, make):
    with pytest.raises(Exception):  # noqa: B017 - whatever it raises fails the check
        trial(check, CASE, make)


def test_a_case_without_calls_proves_nothing(trial):
    case = ServiceCase(use="toy/lookup", calls=())
    trial.fails(checks.every_call_answers_as_the_case_says, case, Good, "names no call")


def test_a_component_that_calls_a_service_gets_a_client_of_the_cases_own(tmp_path):
    case = EnvCase(
        use="toy/env",
        task=Task(id="t", data={}),
        actions=("a",),
        services={"words": ComponentRef(kind="service", use="toy/lookup"), "plain": 3},
    )
    subject = Subject(case=case, work_dir=tmp_path, builder=lambda ref, context: Good(context))
    services = subject.context().services
    assert services["plain"] == 3
    assert isinstance(services["words"], LocalService)
    assert asyncio.run(services["words"].call("lookup", "red")) == {"hits": ("apple",)}
