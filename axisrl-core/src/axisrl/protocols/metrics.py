"""MetricLogger: where numbers and rollout tables go. Only the driver talks to loggers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from axisrl.plugins.events import RunInfo
from axisrl.types import RolloutRow


class MetricLogger(Protocol):
    """A logger that fails is reported once and never ends a run."""

    def start(self, run: RunInfo, resume: Mapping[str, Any] | None) -> None:
        """``resume`` is what ``state_dict`` returned at the checkpoint the run continues from."""
        ...

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Called once a step, steps strictly increasing; unmeasured values are absent."""
        ...

    def rollouts(self, step: int, rows: Sequence[RolloutRow]) -> None:
        """A few sample rollouts of the step, before its ``scalars``."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """JSON that lets a resumed run continue the same record (a W&B run id)."""
        ...

    def finish(self, outcome: str) -> None:
        """Flush and close; ``outcome`` is "completed", "failed" or "interrupted"."""
        ...


@runtime_checkable
class ProgressLogger(Protocol):
    """A logger that also shows what happens between steps."""

    def progress(self, phase: str, done: int, total: int) -> None:
        """``done`` of ``total`` parts of a phase ("rollout", "train", "eval", ...); ``total`` 0 is
        unknown."""
        ...
