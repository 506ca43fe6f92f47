"""The process that runs SGLang, seen from the engine: started, called, ended.

1. SGLang replaces signal handlers, spawns its own processes and kills its whole tree when one of
   them fails: it gets a process, and a process group, of its own.
2. When that process is gone every call raises ``ActorGone``, those under way included. One that
   is there and gives no sign of life is ended (:meth:`HostProcess.watch`).
3. It cannot outlive this process: it ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from axisrl.errors import ActorGone, EngineFailure
from axisrl_sglang.wire import Answer, Call, framed, read_message

_TAIL_BYTES = 4000
_TAIL_LINES = 12
_BESIDE = {"generate", "stream", "abort"}
"""Calls that SGLang answers beside others; during any other it may answer nothing, and whoever made
it has a limit of its own."""


class _Pending(NamedTuple):
    method: str
    future: asyncio.Future[Any]
    part: Callable[[Any], None] | None


class HostProcess:
    """Belongs to one event loop. ``log`` gets everything the process prints; ``module`` is what it
    runs, with ``variables`` added to its environment."""

    def __init__(
        self,
        log: Path,
        module: str = "axisrl_sglang.host",
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        self._pending: dict[int, _Pending] = {}
        self._numbers = count()
        self._gone = ""
        self._ended = asyncio.Event()
        log.parent.mkdir(parents=True, exist_ok=True)
        added = ["env", *(f"{name}={value}" for name, value in (variables or {}).items())]
        ours, theirs = socket.socketpair()
        with log.open("ab") as output, theirs:
            self._process = subprocess.Popen(
                [*added, sys.executable, "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._socket = ours
        self._listening: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Of the process, and of its group."""
        return self._process.pid

    async def call(
        self, method: str, *arguments: Any, part: Callable[[Any], None] | None = None
    ) -> Any:
        """Run a method there; ``part`` gets what comes before the result.

        Raises ``EngineFailure`` when the method refuses and ``ActorGone`` when the process is gone.
        """
        if self._gone:
            raise ActorGone(self._gone, fix=f"see {self.log}")
        if self._listening is None:
            reader, self._writer = await asyncio.open_connection(sock=self._socket)
            self._listening = asyncio.create_task(self._listen(reader))
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = _Pending(method, future, part)
        try:
            self._writer.write(framed(Call(number, method, arguments)))
            return await future
        finally:
            self._pending.pop(number, None)

    def watch(self, answer_s: float) -> None:
        """From here on, end the process when SGLang gives no sign of life for so long: its
        scheduler may hang with every process there."""
        self._watching = asyncio.create_task(self._watch(answer_s))

    async def stay(self) -> None:
        """Raises ``ActorGone`` once the process is gone without having been told to."""
        await self._ended.wait()
        raise ActorGone(self._gone, fix=f"see {self.log}")

    async def stop(self, timeout_s: float) -> None:
        """End it, by force after ``timeout_s``; calls under way raise ``ActorGone``.

        Asked to, SGLang waits until the driver has its memory back.
        """
        self._leave("SGLang was stopped")
        if self._watching is not None:
            self._watching.cancel()
        if self._listening is not None:
            self._listening.cancel()
            self._writer.write(framed(Call(next(self._numbers), "stop", ())))
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, timeout_s)
            self._writer.close()
        self.kill()
        self._socket.close()

    def kill(self) -> None:
        """End the process and all that it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def _watch(self, answer_s: float) -> None:
        while not self._gone:
            await asyncio.sleep(answer_s / 4)
            if any(pending.method not in _BESIDE for pending in self._pending.values()):
                continue
            try:
                async with asyncio.timeout(answer_s):
                    await self.call("alive")
            except TimeoutError:
                self._leave(
                    f"SGLang gave no sign of life for engine.answer_timeout_s {answer_s:g} s and "
                    "was ended"
                )
                await asyncio.to_thread(self.kill)
            except EngineFailure:
                continue  # it has answered
            except ActorGone:
                return

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                self._hand_out(await read_message(reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await asyncio.to_thread(self._process.wait)
            self._leave(f"the SGLang process ended with {code}{self._last_words()}")
            self._ended.set()

    def _hand_out(self, answer: Answer) -> None:
        pending = self._pending.get(answer.number)
        if pending is None or pending.future.done():
            return
        if answer.kind == "part" and pending.part is not None:
            try:
                pending.part(answer.value)
            except Exception as problem:  # noqa: BLE001 - one call's failure is that call's
                pending.future.set_exception(problem)
        elif answer.kind == "done":
            pending.future.set_result(answer.value)
        elif answer.kind == "refused":
            pending.future.set_exception(EngineFailure(answer.value))

    def _leave(self, why: str) -> None:
        self._gone = self._gone or why
        for pending in self._pending.values():
            if not pending.future.done():
                pending.future.set_exception(ActorGone(self._gone, fix=f"see {self.log}"))

    def _last_words(self) -> str:
        with self.log.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
        return "; it said last:\n" + "\n".join(lines) if lines else ""
