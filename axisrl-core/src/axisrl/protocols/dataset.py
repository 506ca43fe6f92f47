"""TaskDataset: tasks by index. Order, epochs and the resume cursor belong to the core's sampler."""

from __future__ import annotations

from typing import Protocol

from axisrl.types import Task


class TaskDataset(Protocol):
    """Same config and seed, same tasks: a resumed run reads what the killed one would have read."""

    def __len__(self) -> int:
        """Tasks in one epoch; at least 1."""
        ...

    def __getitem__(self, index: int) -> Task:
        """Task ``index`` in ``range(len(self))``; ids are unique within the dataset."""
        ...
