"""Tests of axisrl_sglang.serving, in this process, with the fake SGLang."""

import asyncio

import pytest

from axisrl_sglang.messages import Ask
from axisrl_sglang.serving import Serving

ENDLESS = {"temperature": 1.0, "max_new_tokens": 10_000, "ignore_eos": True}
"""Only an abort ends such a request within a test's patience."""


@pytest.fixture
def started(fake_sglang, tiny):
    serving = Serving()
    serving.start({"model_path": str(tiny.path), "dtype": tiny.dtype})
    yield serving
    serving.stop()
    serving.loop.close()


def test_an_abort_before_the_request_was_sent_to_the_scheduler_is_not_lost(started):
    ask = Ask("1", [5, 6, 7], ENDLESS, False)

    async def both():
        asked = asyncio.ensure_future(started.generate(ask))
        while not started._over:
            await asyncio.sleep(0)
        await started.abort("1")
        return await asked

    assert started.loop.run_until_complete(asyncio.wait_for(both(), 30)).finish == "abort"


def test_what_sglang_loaded_is_left_out_of_its_garbage_collection(started):
    assert started._engine.frozen
