"""What a :class:`axisrl.protocols.TaskDataset` promises. It does not read tasks beyond the first
``case.sample``."""

from __future__ import annotations

import json

from axisrl.testing.cases import DatasetCase
from axisrl.testing.harness import CheckFailed, Subject, Suite, require
from axisrl.types import Task

DatasetSubject = Subject[DatasetCase]


def has_at_least_one_task(subject: DatasetSubject) -> None:
    """``len`` is an int of 1 or more."""
    size = len(subject.build())
    require(size >= 1, f"the dataset has {size} tasks")


def task_ids_are_unique(subject: DatasetSubject) -> None:
    """And not empty."""
    seen: dict[str, int] = {}
    for index, task in enumerate(_tasks(subject)):
        require(task.id, f"task {index} has an empty id")
        require(task.id not in seen, f"tasks {seen.get(task.id)} and {index} are both {task.id!r}")
        seen[task.id] = index


def tasks_are_json_with_the_fields_named(subject: DatasetSubject) -> None:
    """``data`` is JSON and has every key of ``case.fields``."""
    for task in _tasks(subject):
        try:
            json.dumps(dict(task.data), allow_nan=False)
        except (TypeError, ValueError) as problem:
            raise CheckFailed(f"the data of task {task.id!r} is not JSON: {problem}") from problem
        missing = [name for name in subject.case.fields if name not in task.data]
        require(not missing, f"task {task.id!r} lacks {', '.join(missing)}")


def same_config_same_tasks(subject: DatasetSubject) -> None:
    """A second instance, and a second read, give equal tasks."""
    first, second = _tasks(subject), _tasks(subject)
    for index, (left, right) in enumerate(zip(first, second, strict=True)):
        require(left == right, f"task {index} is {left.id!r} first and {right.id!r} then")


def an_index_outside_raises(subject: DatasetSubject) -> None:
    """``IndexError`` at ``len``, so that plain iteration ends."""
    dataset = subject.build()
    try:
        dataset[len(dataset)]
    except IndexError:
        return
    raise CheckFailed(f"task {len(dataset)} of {len(dataset)} did not raise IndexError")


class DatasetSuite(Suite):
    """Tries a dataset with ``DatasetCase``s."""

    kind = "dataset"
    checks = (
        has_at_least_one_task,
        task_ids_are_unique,
        tasks_are_json_with_the_fields_named,
        same_config_same_tasks,
        an_index_outside_raises,
    )


def _tasks(subject: DatasetSubject) -> list[Task]:
    dataset = subject.build()
    return [dataset[index] for index in range(min(len(dataset), subject.case.sample))]
