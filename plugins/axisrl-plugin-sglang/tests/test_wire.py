"""Tests of axisrl_sglang.wire."""

import asyncio

import numpy as np
import pytest

from axisrl_sglang.wire import Answer, Call, framed, read_message


def read_all(data, count):
    async def read():
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return [await read_message(reader) for _ in range(count)]

    return asyncio.run(read())


def test_messages_come_out_as_they_went_in():
    sent = [Call(1, "generate", (np.arange(3), "x")), Answer(1, "done", None)]
    call, answer = read_all(b"".join(map(framed, sent)), 2)
    assert call.arguments[0].tolist() == [0, 1, 2]
    assert answer == sent[1]


def test_an_end_within_a_message_is_an_end():
    with pytest.raises(asyncio.IncompleteReadError):
        read_all(framed(Answer(1, "done", "x"))[:-1], 1)
