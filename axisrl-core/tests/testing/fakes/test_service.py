"""A client of a service in this process behaves like one of a run."""

import asyncio

import pytest

from axisrl.errors import ServiceFailure
from axisrl.testing.fakes import LocalService


class Counter:
    def __init__(self):
        self.starts, self.calls = 0, 0

    async def start(self):
        await asyncio.sleep(0)
        self.starts += 1

    async def count(self, by=1):
        self.calls += by
        return self.calls

    async def hang(self):
        await asyncio.Event().wait()

    async def stop(self):
        pass


def test_the_service_is_started_once_before_its_first_calls():
    counter = Counter()

    async def calls():
        client = LocalService(counter)
        return await asyncio.gather(client.call("count"), client.call("count", by=2))

    assert sorted(asyncio.run(calls())) == [1, 3]
    assert counter.starts == 1


def test_a_call_over_its_deadline_is_the_services_failure_by_name():
    client = LocalService(Counter(), "words")
    with pytest.raises(ServiceFailure, match=r"service words, hang gave no answer within 0.01 s"):
        asyncio.run(client.call("hang", timeout_s=0.01))
