"""Spans: what the run did when. ``events.jsonl`` opens in Perfetto and chrome://tracing.

1. Trace Event Format, JSON array: ``[`` in the first line, then one event and a comma a line. The
   closing bracket is optional there, so a run that is killed or still goes on is open to view.
2. An event is a complete one (``ph: X``, ``ts`` and ``dur`` in microseconds since the epoch) on a
   track, or the metadata (``ph: M``) that names the track.
3. A resumed run appends. A line that a kill left half written is cut off first.

Times are each machine's own wall clock: tracks of actors on other machines are as far off as the
clocks are. :func:`read_events` is the only reader.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO


class Track(NamedTuple):
    """A row of the viewer: threads are shown under their process."""

    process: str
    thread: str


class Span(NamedTuple):
    """Something that took ``seconds`` from ``began``, seconds since the epoch."""

    name: str
    began: float
    seconds: float


DRIVER = Track("driver", "phases")
Border = Callable[[Literal["before", "after"], str, int], None]
"""Hears of each phase's begin, and of its end when no error ended it: edge, name, step."""


class SpanLog:
    """Appends spans to a file. ``last`` keeps the newest duration of each phase in seconds, and
    ``total`` the sum of all since the log was opened."""

    def __init__(self, path: Path, border: Border | None = None) -> None:
        self._tracks = tracks_of(_mended(path))
        self._border = border
        self._step = 0
        self._file: TextIO = path.open("a", encoding="utf-8")
        if not self._file.tell():
            self._file.write("[\n")
        self.last: dict[str, float] = {}
        self.total: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def span(self, name: str, step: int | None = None) -> Iterator[None]:
        """Time the block as a phase of the driver in ``step``, or in that of the phase which began
        last. It is logged however it ends."""
        self._step = step = self._step if step is None else step
        if self._border:
            self._border("before", name, step)
        wall, begun = time.time(), time.monotonic()
        try:
            yield
        finally:
            self.last[name] = time.monotonic() - begun
            self.total[name] += self.last[name]
            self.add(DRIVER, Span(name, wall, self.last[name]), step=step)
        if self._border:
            self._border("after", name, step)

    def add(self, track: Track, span: Span, **args: int | str) -> None:
        """Log a span that is over. Spans of one track must not overlap, unless one is within the
        other."""
        pid, tid = self._ids(track)
        event = {"name": span.name, "ph": "X", "ts": round(span.began * 1e6)}
        self._write(
            event | {"dur": round(span.seconds * 1e6), "pid": pid, "tid": tid, "args": args}
        )
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _ids(self, track: Track) -> tuple[int, int]:
        if track not in self._tracks:
            processes = {other.process: pid for other, (pid, _) in self._tracks.items()}
            pid = processes.get(track.process, len(processes) + 1)
            tid = len(self._tracks) + 1
            self._tracks[track] = (pid, tid)
            for kind, name in (("process_name", track.process), ("thread_name", track.thread)):
                about = {"name": name, "process": track.process}
                self._write({"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": about})
        return self._tracks[track]

    def _write(self, event: dict[str, Any]) -> None:
        self._file.write(json.dumps(event) + ",\n")


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a run, metadata included; a last line that is half written is left out.

    Raises ``ValueError`` for a file that :class:`SpanLog` did not write.
    """
    with path.open(encoding="utf-8") as file:
        whole = [line for line in file if line.endswith("\n")]
    if whole and whole[0] != "[\n":
        raise ValueError(f"{path} does not begin as a trace")
    return [json.loads(line.rstrip(",\n")) for line in whole[1:]]


def tracks_of(events: Iterable[dict[str, Any]]) -> dict[Track, tuple[int, int]]:
    """Track -> the process and thread that its events bear."""
    named = [event for event in events if event["name"] == "thread_name"]
    return {Track(*_named(event)): (event["pid"], event["tid"]) for event in named}


def _mended(path: Path) -> list[dict[str, Any]]:
    """Cut off what a kill left half written; the events that are left."""
    if not path.exists():
        return []
    blob = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(blob.rfind(b"\n") + 1)
    return read_events(path)


def _named(event: dict[str, Any]) -> tuple[str, str]:
    return event["args"]["process"], event["args"]["name"]
