"""What a :class:`axisrl.protocols.Service` promises. It does not say what a call should answer: the
case does."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections.abc import AsyncIterator
from dataclasses import fields
from typing import Any

import numpy as np

from axisrl.config.use import ServiceUse
from axisrl.errors import ServiceFailure
from axisrl.protocols import Service
from axisrl.runtime.calls import Call
from axisrl.runtime.services import answered
from axisrl.testing.cases import ServiceCall, ServiceCase
from axisrl.testing.harness import CheckFailed, CheckSkipped, Subject, Suite, require

ServiceSubject = Subject[ServiceCase]


async def every_call_answers_as_the_case_says(subject: ServiceSubject) -> None:
    """Each of ``case.calls``, one after the other."""
    async with _started(subject) as service:
        for call in subject.case.calls:
            await _require_answer(subject, service, call)


async def many_calls_at_once_do_not_mix(subject: ServiceSubject) -> None:
    """Eight times every call, side by side."""
    async with _started(subject) as service:
        calls = subject.case.calls * 8
        await asyncio.gather(*(_require_answer(subject, service, call) for call in calls))


async def another_replica_answers_alike(subject: ServiceSubject) -> None:
    """Also in the other order: nothing that a call leaves behind changes the next one."""
    async with _started(subject) as service:
        for call in reversed(subject.case.calls):
            await _require_answer(subject, service, call)


async def answers_cross_processes(subject: ServiceSubject) -> None:
    """Arguments and answers survive pickling."""
    async with _started(subject) as service:
        for call in subject.case.calls:
            found = await _answer(subject, service, pickle.loads(pickle.dumps(call)))
            try:
                copy = pickle.loads(pickle.dumps(found))
            except Exception as error:  # pickle raises whatever an object makes it raise
                raise CheckFailed(f"{_told(call)} gave what cannot be pickled: {error}") from error
            require(_same(copy, found), f"{_told(call)}: {found!r} changed by pickling to {copy!r}")


async def refused_calls_raise(subject: ServiceSubject) -> None:
    """Each of ``case.refused``, and the next call is answered."""
    if not subject.case.refused:
        raise CheckSkipped("the case names no call that is refused")
    async with _started(subject) as service:
        for call in subject.case.refused:
            with contextlib.suppress(ServiceFailure):
                found = await _answer(subject, service, call)
                require(False, f"{_told(call)} was answered: {found!r}")
            await _require_answer(subject, service, subject.case.calls[0])


async def a_cancelled_call_leaves_the_service_working(subject: ServiceSubject) -> None:
    """Whatever it had begun."""
    async with _started(subject) as service:
        for call in subject.case.calls:
            begun = asyncio.ensure_future(_answer(subject, service, call))
            await asyncio.sleep(0)
            begun.cancel()
            await asyncio.gather(begun, return_exceptions=True)
            await _require_answer(subject, service, call)


async def it_can_be_stopped_twice_and_before_it_was_started(subject: ServiceSubject) -> None:
    """``stop`` is idempotent."""
    service: Service = subject.build()
    await service.stop()
    async with _started(subject) as service:
        await service.stop()


def its_options_leave_those_of_the_run_alone(subject: ServiceSubject) -> None:
    """No option is called what ``services`` in a configuration calls its own keys."""
    if subject.descriptor is None or subject.descriptor.config is None:
        raise CheckSkipped("it takes no options")
    from axisrl.testing.components import manager

    cls = manager().config_class(manager().find("service", subject.case.use))
    own = {item.name for item in fields(ServiceUse)}
    clash = sorted(own & {item.name for item in fields(cls)})
    require(not clash, f"options {', '.join(clash)} can never be set: a run's services use them")


class ServiceSuite(Suite):
    """Tries a service with ``ServiceCase``s."""

    kind = "service"
    checks = (
        every_call_answers_as_the_case_says,
        many_calls_at_once_do_not_mix,
        another_replica_answers_alike,
        answers_cross_processes,
        refused_calls_raise,
        a_cancelled_call_leaves_the_service_working,
        it_can_be_stopped_twice_and_before_it_was_started,
        its_options_leave_those_of_the_run_alone,
    )


@contextlib.asynccontextmanager
async def _started(subject: ServiceSubject) -> AsyncIterator[Service]:
    require(subject.case.calls, "the case names no call")
    service: Service = subject.build()
    try:
        await service.start()
        yield service
    finally:
        await service.stop()


async def _answer(subject: ServiceSubject, service: Service, call: ServiceCall) -> Any:
    asked = Call(
        name=call.method, args=call.args, options=call.options, limit_s=subject.case.limit_s
    )
    return await answered(subject.case.use, service, asked)


async def _require_answer(subject: ServiceSubject, service: Service, call: ServiceCall) -> None:
    found = await _answer(subject, service, call)
    require(_same(found, call.answer), f"{_told(call)} gave {found!r} instead of {call.answer!r}")


def _same(one: Any, other: Any) -> bool:
    """Equal, arrays and what holds them included."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return type(one) is type(other) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _told(call: ServiceCall) -> str:
    words = [repr(arg) for arg in call.args]
    words += [f"{name}={value!r}" for name, value in call.options.items()]
    return f"{call.method}({', '.join(words)})"
