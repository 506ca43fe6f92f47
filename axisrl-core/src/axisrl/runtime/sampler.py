"""TaskSampler: the order of tasks. A seeded shuffle of each epoch; its whole state is one
number."""

from __future__ import annotations

import numpy as np

from axisrl.protocols import TaskDataset
from axisrl.runtime.seeds import derive_seed
from axisrl.types import Task


class TaskSampler:
    """Hands out tasks forever; every task once an epoch."""

    def __init__(self, dataset: TaskDataset, seed: int) -> None:
        self._dataset = dataset
        self._seed = seed
        self._epoch = -1
        self._order = np.zeros(0, np.int64)
        self.cursor = 0
        """Tasks handed out so far; setting it resumes there."""

    def take(self) -> Task:
        """The next task."""
        epoch, index = divmod(self.cursor, len(self._dataset))
        if epoch != self._epoch:
            rng = np.random.default_rng(derive_seed(self._seed, "epoch", epoch))
            self._order, self._epoch = rng.permutation(len(self._dataset)), epoch
        self.cursor += 1
        return self._dataset[int(self._order[index])]
