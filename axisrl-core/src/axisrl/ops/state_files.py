"""A trainer's state in files: which failures of writing and reading it are whose, and its counters.

What is in the files is the trainer's; the core's checkpoint makes them durable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from axisrl.errors import CheckpointError

COUNTERS = "trainer.json"


@contextmanager
def writing() -> Iterator[None]:
    """A disk that refuses is an ``OSError``, whoever wrote."""
    try:
        yield
    except SafetensorError as problem:  # safetensors' own name for a failed write
        raise OSError(str(problem)) from problem


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What does not fit or is damaged in the folder ``path`` is a ``CheckpointError``."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as problem:
        raise CheckpointError(
            f"trainer state in {path} cannot be loaded: {problem}",
            fix="use the checkpoint of a run with the same model and trainer options",
        ) from problem


def write_counters(path: Path, version: int, counters: Mapping[str, Any]) -> None:
    """Write ``counters`` and the version of their format into the folder ``path``."""
    text = json.dumps({"format": version, **counters}, indent=2)
    (path / COUNTERS).write_text(text + "\n", encoding="utf-8")


def read_counters(path: Path, version: int) -> dict[str, Any]:
    """Inverse of :func:`write_counters`. Raises ``CheckpointError`` for another format."""
    counters: dict[str, Any] = json.loads((path / COUNTERS).read_text(encoding="utf-8"))
    if counters["format"] != version:
        raise CheckpointError(
            f"trainer state in {path} has format {counters['format']}, not {version}",
            fix="resume with the version that wrote it",
        )
    return counters
