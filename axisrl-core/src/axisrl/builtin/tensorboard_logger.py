"""``core/tensorboard``: event files under ``tensorboard/`` of the run folder, without torch.

It writes with TensorBoard's own writer and flushes every step. A resumed run opens a new event file
that begins with a session start after the last step its checkpoint knows of: readers then drop what
a killed run logged beyond it. It shows scalars alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from axisrl.config.base import NoConfig
from axisrl.plugins.events import RunInfo
from axisrl.types import BuildContext, RolloutRow

FOLDER = "tensorboard"


class TensorBoardLogger:
    """See the module's docstring."""

    def __init__(self, config: NoConfig, context: BuildContext) -> None:
        self._writer: Any = None
        self._last: int | None = None

    def start(self, run: RunInfo, resume: Mapping[str, Any] | None) -> None:
        """Open a new event file."""
        self._writer = EventFileWriter(str(run.run_dir / FOLDER))
        self._last = run.resumed_from if resume is None else resume["step"]
        if run.resumed_from is not None:
            begin = 0 if self._last is None else self._last + 1
            self._add(begin, session_log=SessionLog(status=SessionLog.START))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """One event with every value."""
        entries = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(step, summary=Summary(value=entries))
        self._writer.flush()
        self._last = step

    def rollouts(self, step: int, rows: Sequence[RolloutRow]) -> None:
        """Not shown here."""

    def state_dict(self) -> dict[str, Any]:
        """The last step written."""
        return {"step": self._last}

    def finish(self, outcome: str) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _add(self, step: int, **fields: Any) -> None:
        self._writer.add_event(Event(step=step, wall_time=time.time(), **fields))
