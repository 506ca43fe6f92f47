"""Spans: what the run did when. ``events.jsonl`` holds one Chrome-trace "complete" event a line.

Wrapped in ``[...]`` with commas the lines open in Perfetto and chrome://tracing (Trace Event
Format, ``ph: X``, ``ts`` and ``dur`` in microseconds since the epoch).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


class SpanLog:
    """Appends spans to a file; ``last`` keeps the newest duration of each name in seconds."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8")
        self.last: dict[str, float] = {}

    @contextmanager
    def span(self, name: str, **args: int | str) -> Iterator[None]:
        """Time the block. It is logged however it ends."""
        wall, begun = time.time(), time.monotonic()
        try:
            yield
        finally:
            self.last[name] = time.monotonic() - begun
            event = {
                "name": name,
                "ph": "X",
                "ts": round(wall * 1e6),
                "dur": round(self.last[name] * 1e6),
                "pid": 0,
                "tid": "driver",
                "args": args,
            }
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
