"""Runs ``axisrl run`` as a user would, starting it again when its driver was killed on purpose.

Everything is bounded: what is not over at its limit is ended and called hung. It does not judge.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from axisrl.runfolder import RunFolder
from axisrl.runtime.faults import Fault, read_ledger, write_plan

_TAIL_LINES = 12
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to run: the words after ``axisrl run``, and the options that a resume needs, too."""

    words: Sequence[str]
    options: Sequence[str]
    environ: Mapping[str, str]
    program: Sequence[str] = (sys.executable, "-m", "axisrl", "run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ended."""

    seconds: float
    starts: int
    """Driver processes it took."""
    hung: bool = False
    error: str = ""
    """The end of what it printed, when it neither completed nor hung."""

    @property
    def completed(self) -> bool:
        """It came to its end."""
        return not self.hung and not self.error


class Runner:
    """One run in ``run_dir``; beside it its output (``.out``), its faults (``.json``) and those
    that happened (``.jsonl``)."""

    def __init__(self, command: Command, run_dir: Path, faults: Sequence[Fault] = ()) -> None:
        self._command = command
        self._dir = run_dir
        self._plan = run_dir.with_suffix(".json")
        self.ledger = run_dir.with_suffix(".jsonl")
        self._output = run_dir.with_suffix(".out")
        self._faults = faults

    def run(self, limit_s: float) -> Ending:
        """Run to the end, within ``limit_s`` seconds."""
        write_plan(self._plan, self._faults)
        begun, starts, code = time.monotonic(), 0, -signal.SIGKILL
        with self._output.open("wb") as output:
            while True:
                deaths = self._driver_deaths()
                process = self._start(output, anew=not starts)
                starts += 1
                try:
                    code = process.wait(max(begun + limit_s - time.monotonic(), _POLL_S))
                except subprocess.TimeoutExpired:
                    return Ending(seconds=time.monotonic() - begun, starts=starts, hung=True)
                finally:
                    if process.poll() is None:  # out of time
                        process.kill()
                        process.wait()
                if code != -signal.SIGKILL or self._driver_deaths() == deaths:
                    break
        error = "" if code == 0 else f"exit code {code}: {self._tail()}"
        return Ending(seconds=time.monotonic() - begun, starts=starts, error=error)

    def _start(self, output: BinaryIO, *, anew: bool) -> subprocess.Popen[bytes]:
        rest = [*self._command.options, "--plain", "--faults", str(self._plan)]
        if RunFolder(self._dir).checkpoints:
            words = [str(self._dir), "--resume"]
        else:
            words = [*self._command.words, "--run-dir", str(self._dir)]
            words += [] if anew else ["--overwrite"]
        return subprocess.Popen(
            [*self._command.program, *words, *rest],
            env=dict(self._command.environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def _driver_deaths(self) -> int:
        return sum(entry.victim == "driver" for entry in read_ledger(self.ledger))

    def _tail(self) -> str:
        lines = self._output.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])
