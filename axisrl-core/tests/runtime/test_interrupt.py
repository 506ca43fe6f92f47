import asyncio

import pytest

from axisrl.runtime.interrupt import Interrupted, unless_interrupted


def test_work_that_ends_is_returned():
    async def work():
        return 3

    async def main():
        return await unless_interrupted(asyncio.Event(), work())

    assert asyncio.run(main()) == 3


def test_work_that_fails_raises_its_own_error():
    async def work():
        raise ValueError("broken")

    async def main():
        await unless_interrupted(asyncio.Event(), work())

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(main())


def test_an_interrupt_cancels_the_work_and_waits_for_its_end():
    ended = []

    async def work(interrupt):
        try:
            interrupt.set()
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def main():
        interrupt = asyncio.Event()
        await unless_interrupted(interrupt, work(interrupt))

    with pytest.raises(Interrupted):
        asyncio.run(main())
    assert ended == [True]
