"""The process in which SGLang runs: ``python -m axisrl_sglang.host SOCKET``.

1. ``SOCKET`` is an inherited file descriptor over which :mod:`axisrl_sglang.process` calls.
2. When standard input ends, so do this process and everything SGLang started: whoever called is
   gone, or wants no more.
3. When a process ends that SGLang started, so does everything: SGLang's own way of ending after
   that takes its time, or for ever.

What the methods do is in :mod:`axisrl_sglang.serving`.
"""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from multiprocessing import connection
from typing import Any

from axisrl_sglang.serving import Serving
from axisrl_sglang.wire import Answer, Call, framed, read_message


def main(serving: Serving) -> None:
    """Serve until standard input ends."""
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    channel = socket.socket(fileno=int(sys.argv[1]))
    call = asyncio.run(_first(channel.dup()))
    try:
        answer = Answer(call.number, "done", serving.start(*call.arguments))
    except Exception as problem:  # noqa: BLE001 - whatever stops SGLang, the caller must hear
        answer = Answer(call.number, "refused", _described(problem))
    stopping = threading.Event()
    if answer.kind == "done":
        watched = (multiprocessing.active_children(), stopping)
        threading.Thread(target=_end_with_a_child, args=watched, daemon=True).start()
    channel.setblocking(True)
    channel.sendall(framed(answer))
    if answer.kind == "done":
        serving.loop.run_until_complete(_serve(serving, channel))
        stopping.set()
        serving.stop()


def _end_with_the_caller() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(0, signal.SIGKILL)


def _end_with_a_child(
    children: Sequence[multiprocessing.process.BaseProcess], stopping: threading.Event
) -> None:
    ended = connection.wait([child.sentinel for child in children]) if children else []
    for child in (each for each in children if each.sentinel in ended):
        child.join()
        if stopping.is_set():
            return
        told = f"{child.name} of SGLang (pid {child.pid}) ended with {child.exitcode}\n"
        os.write(sys.stdout.fileno(), told.encode())
        os.killpg(0, signal.SIGKILL)


async def _first(channel: socket.socket) -> Call:
    """The first call, before SGLang has made the loop in which it wants to live."""
    reader, writer = await asyncio.open_connection(sock=channel)
    call: Call = await read_message(reader)
    writer.close()
    return call


async def _serve(serving: Serving, channel: socket.socket) -> None:
    """Answer calls, each in a task of its own, until told to stop or the other end is gone."""
    reader, writer = await asyncio.open_connection(sock=channel)
    answering: set[asyncio.Task[None]] = set()
    while True:
        try:
            call = await read_message(reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        if call.method == "stop":
            return
        task = asyncio.create_task(_answer(serving, call, writer))
        answering.add(task)
        task.add_done_callback(answering.discard)


async def _answer(serving: Serving, call: Call, writer: asyncio.StreamWriter) -> None:
    def tell(kind: str, value: Any) -> None:
        writer.write(framed(Answer(call.number, kind, value)))

    method = getattr(serving, call.method)
    try:
        if inspect.isasyncgenfunction(method):
            async for part in method(*call.arguments):
                tell("part", part)
            tell("done", None)
        else:
            tell("done", await method(*call.arguments))
    except Exception as problem:  # noqa: BLE001 - one call's failure is that call's
        tell("refused", _described(problem))


def _described(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"


if __name__ == "__main__":
    main(Serving())
