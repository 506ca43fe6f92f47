"""``core/jsonl``: one line a step in ``metrics.jsonl`` of the run folder.

A line is ``{"step": ..., "time": <unix seconds>, name: value, ...}``, written in one piece and at
once. On resume every line that the checkpoint does not know of is cut, as is one that a killed run
left unfinished, so the file ends up as an uninterrupted run's. NaN and infinities, which JSON
lacks, are null. It keeps no rollouts: those are in ``rollouts/``.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from axisrl.config.base import NoConfig
from axisrl.plugins.events import RunInfo
from axisrl.types import BuildContext, RolloutRow

FILE = "metrics.jsonl"


class JsonlLogger:
    """See the module's docstring."""

    def __init__(self, config: NoConfig, context: BuildContext) -> None:
        self._file: int | None = None
        self._last: int | None = None

    def start(self, run: RunInfo, resume: Mapping[str, Any] | None) -> None:
        """A fresh run starts an empty file; a resumed one keeps the steps of its checkpoint.

        The step of the checkpoint itself may come again: its evaluation was still owed.
        """
        path = run.run_dir / FILE
        last = run.resumed_from if resume is None else resume["step"]
        kept = [] if last is None else _lines_until(path, last)
        self._last = _step(kept[-1]) if kept else None
        draft = path.with_suffix(".jsonl.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(b"".join(kept))
        draft.replace(path)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Raises ``ValueError`` for a step that is not after the last one."""
        if self._file is None:
            raise ValueError(f"step {step} was logged to {FILE} outside a run")
        if self._last is not None and step <= self._last:
            raise ValueError(f"step {step} was logged to {FILE} after step {self._last}")
        entry: dict[str, Any] = {"step": step, "time": round(time.time(), 3)}
        entry |= {name: value if math.isfinite(value) else None for name, value in values.items()}
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False)
        _write(self._file, f"{line}\n".encode())
        self._last = step

    def rollouts(self, step: int, rows: Sequence[RolloutRow]) -> None:
        """Not kept here."""

    def state_dict(self) -> dict[str, Any]:
        """The last step written."""
        return {"step": self._last}

    def finish(self, outcome: str) -> None:
        """Close the file."""
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
            self._file = None


def _lines_until(path: Path, step: int) -> list[bytes]:
    """The whole lines up to ``step``; they end at the first one that is not."""
    kept: list[bytes] = []
    if not path.exists():
        return kept
    for line in path.read_bytes().splitlines(keepends=True):
        found = _step(line)
        if not line.endswith(b"\n") or found is None or found > step:
            break
        kept.append(line)
    return kept


def _step(line: bytes) -> int | None:
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) else None


def _write(file: int, line: bytes) -> None:
    """All of the line, or none of it: a disk that fills up halfway leaves no torn line."""
    before = os.fstat(file).st_size
    try:
        written = os.write(file, line)
        if written < len(line):
            os.write(file, line[written:])
    except OSError:
        os.ftruncate(file, before)
        raise
