"""Each check of DatasetSuite catches a dataset that breaks its promise."""

import dataclasses
import itertools

import pytest

from axisrl.testing import DatasetCase, DatasetSuite
from axisrl.testing import dataset as checks
from axisrl.testing.fakes import CountDataset, CountDatasetConfig
from axisrl.types import Task

CASE = DatasetCase(use="toy/count", fields=("question", "answer"))


class Good(CountDataset):
    def __init__(self, context):
        super().__init__(CountDatasetConfig(size=5), context)


class Empty(Good):
    def __len__(self):
        return 0


class AllAlike(Good):
    def __getitem__(self, index):
        return dataclasses.replace(super().__getitem__(index), id="task")


class Nameless(Good):
    def __getitem__(self, index):
        return dataclasses.replace(super().__getitem__(index), id="")


class HoldsASet(Good):
    def __getitem__(self, index):
        task = super().__getitem__(index)
        return Task(id=task.id, data={**task.data, "tags": {1, 2}})


class LacksTheAnswer(Good):
    def __getitem__(self, index):
        task = super().__getitem__(index)
        return Task(id=task.id, data={"question": task.data["question"]})


class NewEveryTime(Good):
    counter = itertools.count()

    def __getitem__(self, index):
        return dataclasses.replace(super().__getitem__(index), id=f"t{next(self.counter)}")


class WrapsAround(Good):
    def __getitem__(self, index):
        return super().__getitem__(index % len(self))


BROKEN = [
    (checks.has_at_least_one_task, Empty, "0 tasks"),
    (checks.task_ids_are_unique, AllAlike, "tasks 0 and 1 are both 'task'"),
    (checks.task_ids_are_unique, Nameless, "task 0 has an empty id"),
    (checks.tasks_are_json_with_the_fields_named, HoldsASet, "'count-0' is not JSON"),
    (checks.tasks_are_json_with_the_fields_named, LacksTheAnswer, "lacks answer"),
    (checks.same_config_same_tasks, NewEveryTime, "task 0 is"),
    (checks.an_index_outside_raises, WrapsAround, "did not raise IndexError"),
]


def test_a_good_dataset_passes_every_check(trial):
    trial.passes(DatasetSuite, CASE, Good)


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_dataset_is_caught(trial, check, make, told):
    trial.fails(check, CASE, make, told)


def test_every_check_catches_something():
    assert {check for check, _, _ in BROKEN} == set(DatasetSuite.checks)
