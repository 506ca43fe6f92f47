"""GSM8K as tasks, from a file, a folder or the Hugging Face hub.

It does not shuffle, split or score; rows are kept as they are and ids are ``<split>-<row>``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from axisrl.errors import EnvironmentProblem
from axisrl.types import BuildContext, Task
from axisrl_gsm8k.config import Gsm8kConfig

_SUFFIXES = (".jsonl", ".parquet")
_FIELDS = ("question", "answer")
_EXTRA = "pip install 'axisrl-plugin-gsm8k[datasets]'"


class Gsm8k:
    """All rows in memory (GSM8K is 5 MB); ``data`` holds ``question`` and ``answer``."""

    def __init__(self, config: Gsm8kConfig, context: BuildContext) -> None:
        rows = islice(_rows(config), config.limit or None)
        self._tasks = [_task(config, index, row) for index, row in enumerate(rows)]
        if not self._tasks:
            raise EnvironmentProblem(
                f"{config.source} has no rows of split {config.split!r}",
                fix="set dataset.source and dataset.split to data that has rows",
            )

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        return self._tasks[index]


def _rows(config: Gsm8kConfig) -> Iterator[Mapping[str, Any]]:
    path = Path(config.source).expanduser()
    if path.is_dir():
        for file in _split_files(path, config.split):
            yield from _file_rows(file)
    elif path.is_file():
        yield from _file_rows(path)
    elif path.suffix in _SUFFIXES or path.is_absolute() or config.source.startswith((".", "~")):
        raise EnvironmentProblem(
            f"there is no file or folder {path}",
            fix="set dataset.source to a .jsonl or .parquet file or a folder of them",
        )
    else:
        yield from _hub_rows(config)


def _split_files(folder: Path, split: str) -> list[Path]:
    """``<split>.jsonl``, or the shards of ``<split>*.parquet``, also in the hub's folder main/."""
    for place in (folder, folder / "main"):
        for suffix in _SUFFIXES:
            files = [*place.glob(f"{split}{suffix}"), *sorted(place.glob(f"{split}-*{suffix}"))]
            if files:
                return files
    raise EnvironmentProblem(
        f"the folder {folder} has no {split}.jsonl and no {split}*.parquet",
        fix="set dataset.source to the folder with the files, or dataset.split to one it has",
    )


def _file_rows(path: Path) -> Iterable[Mapping[str, Any]]:
    if path.suffix == ".jsonl":
        return _jsonl_rows(path)
    if path.suffix == ".parquet":
        return _parquet_rows(path)
    raise EnvironmentProblem(
        f"{path} is neither .jsonl nor .parquet", fix="set dataset.source to one of those"
    )


def _jsonl_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as problem:
                raise EnvironmentProblem(
                    f"line {number} of {path} is not JSON: {problem}",
                    fix="download or export the file again",
                ) from problem
            yield row


def _parquet_rows(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError as problem:
        raise EnvironmentProblem(f"reading {path} needs pyarrow", fix=_EXTRA) from problem
    try:
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except ArrowInvalid as problem:
        raise EnvironmentProblem(
            f"{path} is not a parquet file: {problem}", fix="download or export the file again"
        ) from problem
    return rows


def _hub_rows(config: Gsm8kConfig) -> Iterable[Mapping[str, Any]]:
    try:
        from datasets import load_dataset
    except ImportError as problem:
        raise EnvironmentProblem(
            f"there is no file or folder {config.source}, and loading it from the Hugging Face hub "
            "needs the package datasets",
            fix=f"{_EXTRA}, or set dataset.source to a file or folder",
        ) from problem
    try:
        rows: Iterable[Mapping[str, Any]] = load_dataset(config.source, "main", split=config.split)
    except (OSError, ValueError) as problem:
        raise EnvironmentProblem(
            f"the hub dataset {config.source} (split {config.split}) cannot be loaded: {problem}",
            fix="check the name and the connection, or set dataset.source to a file or folder",
        ) from problem
    return rows


def _task(config: Gsm8kConfig, index: int, row: Mapping[str, Any]) -> Task:
    fields = {name: row.get(name) for name in _FIELDS} if isinstance(row, Mapping) else {}
    for name in _FIELDS:
        if not isinstance(fields.get(name), str) or not fields[name]:
            raise EnvironmentProblem(
                f"row {index} of {config.source} has no text in {name!r}",
                fix="GSM8K rows have 'question' and 'answer', the answer ending in '#### N'",
            )
    return Task(id=f"{config.split}-{index:05d}", data=fields)
