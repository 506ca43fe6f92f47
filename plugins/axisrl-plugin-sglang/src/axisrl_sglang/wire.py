"""Messages between an engine and its SGLang process: pickled, each behind its length.

Both ends are this plugin's own, over a socket pair that nobody else holds. It never carries
weights.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from typing import Any, NamedTuple

_LENGTH = struct.Struct("!Q")


class Call(NamedTuple):
    """To the SGLang process: run a method. Its answers carry the same number."""

    number: int
    method: str
    arguments: tuple[Any, ...]


class Answer(NamedTuple):
    """From the SGLang process. Of one call there is a last answer, and any number before it."""

    number: int
    kind: str
    """``part``: more is to come; ``done``: the result; ``refused``: a message that says why."""
    value: Any


def framed(message: Call | Answer) -> bytes:
    """The bytes of one message."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


async def read_message(reader: asyncio.StreamReader) -> Any:
    """The next message. Raises ``asyncio.IncompleteReadError`` when the other end is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))
