"""``core/tasks``: a JSONL file of tasks, one object a line.

``id`` is optional (``<file>-<line>`` without it); every other field is the task's data, whatever it
is called. Blank lines are skipped. The file is read once, at construction; a wrong line is an error
that names the file and the line. It does not download, shuffle or split.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from axisrl.builtin.config import TasksConfig
from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl.types import BuildContext, Task


class TasksDataset:
    """The tasks in file order."""

    def __init__(self, config: TasksConfig, context: BuildContext) -> None:
        path = Path(config.path).expanduser()
        try:
            blob = path.read_bytes()
        except OSError as problem:
            raise EnvironmentProblem(
                f"cannot read the task file {path}: {problem.strerror}",
                fix="set the dataset's `path` to a JSONL file",
            ) from problem
        lines: dict[str, int] = {}
        self._tasks: list[Task] = []
        for number, line in enumerate(blob.split(b"\n"), start=1):
            if not line.strip():
                continue
            task = _task(path, number, line)
            if task.id in lines:
                raise ConfigError(
                    f"{path}:{number}: id {task.id!r} is taken by line {lines[task.id]}"
                )
            lines[task.id] = number
            self._tasks.append(task)
        if not self._tasks:
            raise ConfigError(f"{path} has no tasks", fix="write one JSON object a line into it")

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        return self._tasks[index]


def _task(path: Path, number: int, line: bytes) -> Task:
    try:
        fields: Any = json.loads(line)
    except ValueError as problem:
        raise ConfigError(f"{path}:{number}: not JSON ({problem})") from problem
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}:{number}: a task is an object, not {type(fields).__name__}")
    name = fields.pop("id", f"{path.stem}-{number}")
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise ConfigError(f"{path}:{number}: id {name!r} is neither a string nor a whole number")
    return Task(id=str(name), data=fields)
