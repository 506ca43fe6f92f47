import asyncio

import pytest

from axisrl.runtime.gate import Gate


async def visit(gate, door, log, name):
    async with gate.inside():
        log.append(name)
        await door.wait()


def test_a_shut_gate_lets_nobody_in_and_is_empty_once_the_last_is_out():
    async def run():
        gate, door, log = Gate(), asyncio.Event(), []
        first = asyncio.ensure_future(visit(gate, door, log, "first"))
        await asyncio.sleep(0)
        gate.shut()
        second = asyncio.ensure_future(visit(gate, door, log, "second"))
        emptied = asyncio.ensure_future(gate.empty())
        await asyncio.sleep(0.01)
        assert log == ["first"] and gate.busy and not emptied.done()
        door.set()
        await asyncio.wait_for(emptied, 1)
        assert not gate.busy and log == ["first"]
        gate.open()
        await asyncio.gather(first, second)
        assert log == ["first", "second"]

    asyncio.run(run())


def test_a_call_that_fails_is_out_too():
    async def run():
        gate = Gate()
        with pytest.raises(ValueError, match="inside"):
            async with gate.inside():
                raise ValueError("inside")
        await asyncio.wait_for(gate.empty(), 1)

    asyncio.run(run())
