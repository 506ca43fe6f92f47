"""JSON messages over TCP, one a line: how senders and receivers of weights agree on a round.

A message is one of this package's, from a process of the same run; nothing here is for strangers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Mapping
from typing import Any

LONGEST = 2**28
"""Bytes of a message: a model of a hundred thousand tensors is described in about 10 MB."""
Message = dict[str, Any]


class Channel:
    """The blocking end of a connection."""

    def __init__(self, address: str, timeout_s: float) -> None:
        """``address``: ``host:port``. Raises ``OSError`` when nobody is there in time, as do the
        methods."""
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._lines = self._socket.makefile("rb")

    def say(self, message: Mapping[str, Any]) -> None:
        """Send one message."""
        self._socket.sendall(line(message))

    def hear(self) -> Message:
        """The next message. Raises ``ConnectionError`` when the other end is gone."""
        return _message(self._lines.readline(LONGEST))

    def wait_for_ever(self) -> None:
        """No time-out from here on."""
        self._socket.settimeout(None)

    def close(self) -> None:
        """End the connection, and whoever waits in :meth:`hear`."""
        with contextlib.suppress(OSError):  # the other end was faster
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def line(message: Mapping[str, Any]) -> bytes:
    """The bytes of a message."""
    return json.dumps(message).encode() + b"\n"


async def hear(reader: asyncio.StreamReader) -> Message:
    """The next message. Raises ``ConnectionError`` when the other end is gone."""
    return _message(await reader.readline())


def _message(raw: bytes) -> Message:
    if not raw.endswith(b"\n"):
        raise ConnectionError("the other end is gone")
    message: Message = json.loads(raw)
    return message
