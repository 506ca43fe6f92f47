"""Tests of axisrl.ops.broadcast.channel."""

import asyncio
import socket

import pytest

from axisrl.ops.broadcast.channel import Channel, hear, line


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        yield server


def address(listener):
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_messages_go_both_ways(listener):
    channel = Channel(address(listener), 5.0)
    other, _ = listener.accept()
    channel.say({"a": [1, None]})
    assert other.recv(100) == line({"a": [1, None]})
    other.sendall(line({"b": 1}) + line({"c": 2}))
    assert [channel.hear(), channel.hear()] == [{"b": 1}, {"c": 2}]
    other.close()
    with pytest.raises(ConnectionError, match="gone"):
        channel.hear()
    channel.close()


def test_nobody_waits_for_ever_for_a_silent_end(listener):
    channel = Channel(address(listener), 0.05)
    with pytest.raises(TimeoutError):
        channel.hear()
    channel.close()


def test_an_address_where_nobody_listens_is_an_error(listener):
    where = address(listener)
    listener.close()
    with pytest.raises(OSError):
        Channel(where, 1.0)


def test_a_message_cut_short_is_an_end():
    async def read():
        reader = asyncio.StreamReader()
        reader.feed_data(line({"a": 1}) + b'{"b"')
        reader.feed_eof()
        first = await hear(reader)
        with pytest.raises(ConnectionError):
            await hear(reader)
        return first

    assert asyncio.run(read()) == {"a": 1}
