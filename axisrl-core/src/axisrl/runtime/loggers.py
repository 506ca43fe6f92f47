"""Composes several metric loggers into one whose failures never end a run.

1. The first failure of a logger is reported with its name; later ones are counted and summed up at
   the end.
2. A logger that could not start is left alone from then on, but its resume state is carried
   forward, so that a later resume still continues the same record.

It does not compute or filter anything.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from axisrl.plugins.events import RunInfo
from axisrl.protocols.metrics import MetricLogger, ProgressLogger
from axisrl.types import RolloutRow

_log = logging.getLogger("axisrl")


class LoggerGroup:
    """``loggers`` are (component id, logger) pairs; a repeated id gets ``#2``, ``#3``, ..."""

    def __init__(self, loggers: Iterable[tuple[str, MetricLogger]]) -> None:
        self._loggers: dict[str, MetricLogger] = {}
        seen = Counter[str]()
        for name, logger in loggers:
            seen[name] += 1
            self._loggers[name if seen[name] == 1 else f"{name}#{seen[name]}"] = logger
        self._running: dict[str, MetricLogger] = {}
        self._states: dict[str, dict[str, Any]] = {}
        self._failures = Counter[str]()

    def start(self, run: RunInfo, resume_states: Mapping[str, dict[str, Any]] | None) -> None:
        """``resume_states`` is what :meth:`state_dict` returned at the checkpoint."""
        self._states = dict(resume_states or {})
        for name, logger in self._loggers.items():
            state = self._states.get(name)
            if self._guard(name, "start", partial(logger.start, run, state)):
                self._running[name] = logger

    def progress(self, phase: str, done: int, total: int) -> None:
        """Passed to the loggers that show progress between steps."""
        for name, logger in self._running.items():
            if isinstance(logger, ProgressLogger):
                self._guard(name, "progress", partial(logger.progress, phase, done, total))

    def rollouts(self, step: int, rows: Sequence[RolloutRow]) -> None:
        """Samples of the step; before its :meth:`scalars`."""
        for name, logger in self._running.items():
            self._guard(name, "rollouts", partial(logger.rollouts, step, rows))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Everything measured in the step; ends the step."""
        for name, logger in self._running.items():
            self._guard(name, "scalars", partial(logger.scalars, step, values))

    def state_dict(self) -> Mapping[str, dict[str, Any]]:
        """State by logger; JSON."""
        for name, logger in self._running.items():
            self._guard(name, "state_dict", partial(self._keep, name, logger))
        return dict(self._states)

    def finish(self, outcome: str) -> None:
        """Close all and say how often which failed; idempotent."""
        for name, logger in self._running.items():
            self._guard(name, "finish", partial(logger.finish, outcome))
        self._running = {}
        for name, times in self._failures.items():
            if times > 1:
                _log.warning("logger %s failed %d times in this run", name, times)
        self._failures.clear()

    def _keep(self, name: str, logger: MetricLogger) -> None:
        self._states[name] = logger.state_dict()

    def _guard(self, name: str, action: str, call: Callable[[], None]) -> bool:
        try:
            call()
        except Exception as problem:  # noqa: BLE001  a logger's error, of any kind, never ends a run
            self._failures[name] += 1
            if self._failures[name] == 1:
                _log.warning(
                    "logger %s failed in %s (%s: %s); the run goes on without what it would have "
                    "recorded, further failures are counted",
                    name,
                    action,
                    type(problem).__name__,
                    problem,
                )
            return False
        return True
