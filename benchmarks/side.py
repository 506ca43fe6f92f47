"""One side of a comparison: a process that does one update at a time, when told to.

Both sides speak the same protocol (:mod:`baton`), so that the one waits while the other works and
neither shares threads, allocator or Python's lock with it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

from baton import MARK


class SideFailed(RuntimeError):
    """The process of a side ended or said something that was not expected."""


class Taken(NamedTuple):
    """Seconds of one update, by the clock and of all threads' CPU time."""

    wall_s: float
    cpu_s: float


class Side:
    """A running side. Use it as a context manager; leaving ends the process."""

    def __init__(self, name: str, command: Sequence[str], threads: int, log: Path) -> None:
        self.name = name
        self._log = log
        self._cpu_s = 0.0
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
            env=os.environ | thread_settings(threads),
        )

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def wait_until_ready(self) -> None:
        """Until the models are loaded."""
        self._cpu_s = self._wait()

    def update(self) -> Taken:
        """Let it do one update."""
        begun, before = time.perf_counter(), self._cpu_s
        self._tell()
        self._cpu_s = self._wait()
        return Taken(time.perf_counter() - begun, self._cpu_s - before)

    def finish(self) -> None:
        """Let the process end by itself, so that its files are whole."""
        self._tell()
        for _ in self._stdout:
            pass
        if code := self._process.wait():
            raise SideFailed(f"{self.name} ended with code {code}; see below\n{self._tail()}")

    @property
    def _stdout(self) -> IO[str]:
        if self._process.stdout is None:
            raise SideFailed(f"{self.name} has no output")
        return self._process.stdout

    def _tell(self) -> None:
        if self._process.stdin is None:
            raise SideFailed(f"{self.name} has no input")
        try:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SideFailed(f"{self.name} is gone; see below\n{self._tail()}") from None

    def _wait(self) -> float:
        for line in self._stdout:
            if line.startswith(MARK):
                return float(line.split()[1])
        raise SideFailed(f"{self.name} ended early; see below\n{self._tail()}")

    def _tail(self) -> str:
        return "\n".join(self._log.read_text().splitlines()[-20:])


def thread_settings(threads: int) -> dict[str, str]:
    """What gives both sides the same number of threads and keeps them off the network."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
