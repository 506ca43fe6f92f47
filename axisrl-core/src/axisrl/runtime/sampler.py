"""TaskSampler: which task is played next.

1. ``uniform`` is a seeded shuffle of each epoch: every task once, whatever happened to it.
2. The other strategies draw by weight (:mod:`axisrl.runtime.difficulty`). A draw depends on the
   seed, the number of tasks taken before it and what was observed until then, on nothing else.
3. A task in flight (taken, not yet observed) is not drawn again while there are others; where all
   of those weigh 0, each of them is as likely.

It does not play or filter anything, and keeps no task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axisrl.config.schema import SamplerConfig
from axisrl.errors import CheckpointError
from axisrl.protocols import TaskDataset
from axisrl.runtime.difficulty import Difficulty
from axisrl.runtime.seeds import derive_seed
from axisrl.runtime.thin import short_id
from axisrl.types import Task


class TaskSampler:
    """Hands out tasks forever."""

    def __init__(self, dataset: TaskDataset, seed: int, config: SamplerConfig) -> None:
        self._dataset = dataset
        self._seed = seed
        self._cursor = 0
        self._epoch = -1
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)
        self._learns = config.strategy != "uniform"
        self._difficulty = Difficulty(len(dataset) if self._learns else 0, config)
        self._flying: dict[str, list[int]] = {}
        """Id of a task in flight -> its index, once for each time it was taken."""

    @property
    def cursor(self) -> int:
        """Tasks handed out so far."""
        return self._cursor

    def take(self) -> Task:
        """The next task."""
        return self.draw()[1]

    def task(self, index: int) -> Task:
        """The task that :meth:`draw` gave with this index."""
        return self._dataset[index]

    def draw(self) -> tuple[int, Task]:
        """The next task and its index in the dataset."""
        index = self._draw() if self._learns else self._shuffled()
        self._cursor += 1
        task = self._dataset[index]
        if self._learns:
            self._flying.setdefault(short_id(task.id), []).append(index)
        return index, task

    def observe(self, task_id: str, rewards: Sequence[float]) -> None:
        """A group of a task that was taken is over; ``rewards`` are its usable rollouts', possibly
        none. Raises ``ValueError`` for a task that is not in flight."""
        if not self._learns:
            return
        if task_id not in self._flying:
            raise ValueError(f"task {task_id!r} is observed, and is not in flight")
        index = self._flying[task_id].pop(0)
        if not self._flying[task_id]:
            del self._flying[task_id]
        if len(rewards):
            self._difficulty.observe(index, [float(reward) for reward in rewards])

    def metrics(self) -> dict[str, float]:
        """What is known of the tasks (:meth:`Difficulty.metrics`); empty for ``uniform``."""
        return self._difficulty.metrics() if self._learns else {}

    def state_dict(self) -> dict[str, Any]:
        """All of it; JSON."""
        state: dict[str, Any] = {"cursor": self._cursor}
        if self._learns:
            flying = [index for indexes in self._flying.values() for index in indexes]
            state |= {"tasks": len(self._dataset), "flying": flying}
            state |= self._difficulty.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` described; an empty state is the beginning, and what
        another strategy never kept is unknown.

        Raises ``CheckpointError`` when the dataset has another number of tasks than it had.
        """
        self._cursor = state.get("cursor", 0)
        if not self._learns:
            return
        there, then = len(self._dataset), state.get("tasks", len(self._dataset))
        if there != then:
            raise CheckpointError(
                f"sampler: the dataset has {there} tasks, it had {then} when the run was saved, "
                "and what was learnt of them goes by their place",
                fix="resume with the dataset of before, or with sampler: uniform",
            )
        self._difficulty.load_state_dict(state)
        self._flying = {}
        for index in state.get("flying", ()):
            self._flying.setdefault(short_id(self._dataset[index].id), []).append(index)

    def _shuffled(self) -> int:
        epoch, place = divmod(self._cursor, len(self._dataset))
        if epoch != self._epoch:
            rng = np.random.default_rng(derive_seed(self._seed, "epoch", epoch))
            self._order, self._epoch = rng.permutation(len(self._dataset)), epoch
        return int(self._order[place])

    def _draw(self) -> int:
        weights = self._difficulty.weights
        free = np.ones(len(weights), np.bool_)
        flying = {index for indexes in self._flying.values() for index in indexes}
        if len(flying) < len(weights):
            free[list(flying)] = False
        wanted = np.flatnonzero(free & (weights > 0))
        if not len(wanted):
            wanted, weights = np.flatnonzero(free), np.ones(len(weights))
        ladder = np.cumsum(weights[wanted])
        rng = np.random.default_rng(derive_seed(self._seed, "draw", self._cursor))
        place = int(np.searchsorted(ladder, rng.random() * ladder[-1], side="right"))
        return int(wanted[min(place, len(wanted) - 1)])
