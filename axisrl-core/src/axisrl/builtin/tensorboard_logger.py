"""``core/tensorboard``: event files under ``tensorboard/`` of the run folder, without torch.

It writes with TensorBoard's own writer and flushes every step. A resumed run opens a new event file
that begins with a session start at the step after the checkpoint: readers then drop what a killed
run logged beyond it. It shows scalars alone.
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

    def start(self, run: RunInfo, resume: Mapping[str, Any] | None) -> None:
        """Open a new event file."""
        self._writer = EventFileWriter(str(run.run_dir / FOLDER))
        if run.resumed_from is not None:
            session = SessionLog(status=SessionLog.START)
            self._add(run.resumed_from + 1, session_log=session)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """One event with every value."""
        entries = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(step, summary=Summary(value=entries))
        self._writer.flush()

    def rollouts(self, step: int, rows: Sequence[RolloutRow]) -> None:
        """Not shown here."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the step of the checkpoint says where to go on."""
        return {}

    def finish(self, outcome: str) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _add(self, step: int, **fields: Any) -> None:
        self._writer.add_event(Event(step=step, wall_time=time.time(), **fields))
