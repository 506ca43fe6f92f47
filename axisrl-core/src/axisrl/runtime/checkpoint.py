"""Checkpoints: a folder that is whole or not there.

1. Everything is written into a hidden temporary folder, every file is fsynced, the folder is
   renamed to ``step-000012``, and ``COMPLETE`` is written last. Only a folder with that marker
   counts, and it is never taken away before a newer one has it.
2. Each of these is a phase of its own: ``checkpoint write``, ``checkpoint rename``, ``checkpoint
   mark``.
3. :func:`latest` names an unfinished one and goes on to the one before it.
4. ``state.json`` is the driver's part; ``trainer/``, ``value/`` and ``reference/`` are whatever
   the backend of that model saved. Nothing is pickled.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from axisrl.errors import CheckpointError, EnvironmentProblem
from axisrl.runfolder import CHECKPOINT, COMPLETE
from axisrl.runtime.actors import ActorHandle

_STATE = "state.json"
_LOGGER = logging.getLogger("axisrl.checkpoint")
Phase = Callable[[str], AbstractContextManager[object]]
"""A block of that name begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The driver at the border between two windows; all of it is in every checkpoint."""

    step: int = 0
    """Optimizer steps taken."""
    version: int = 0
    """Weight version the engines serve."""
    source: dict[str, Any] = field(default_factory=dict)
    """Where the tasks or saved rollouts are read on, and what is known of how hard tasks are."""
    tokens: int = 0
    """Tokens sampled for training so far."""
    pending: dict[str, float] | None = field(default_factory=dict)
    """Metrics of ``step`` not yet logged, because its evaluation is still owed; None when all is
    settled."""
    entropy: float | None = None
    """Mean entropy of the last step's global batch, under entropy control."""
    entropy_coef: float | None = None
    """Where entropy control has moved the coefficient; None is where it starts."""
    reference_step: int = 0
    """Step whose policy the reference is; 0 is the model the run started from."""
    quarantined: list[str] = field(default_factory=list)
    """Tasks that are not played any more, because they took workers down."""
    loggers: dict[str, dict[str, Any]] = field(default_factory=dict)


async def save_checkpoint(
    run_dir: Path,
    state: RunState,
    models: Mapping[str, ActorHandle],
    *,
    keep: int,
    phase: Phase = nullcontext,
) -> Path:
    """Write a checkpoint of ``state`` and of each model (folder -> whose), then drop all but the
    ``keep`` newest. ``phase`` wraps each part of it.

    Models move in steps alone, so of a step that is saved again only ``state`` is written.
    Raises ``EnvironmentProblem`` when the disk refuses; the checkpoint before stays whole.
    """
    try:
        final = await _save(run_dir / "checkpoints", state, models, phase)
        _drop_old(final.parent, keep)
        return final
    except OSError as problem:
        raise EnvironmentProblem(
            f"step {state.step} cannot be saved in {run_dir / 'checkpoints'}: {problem}",
            fix="free some space there, then resume the run",
        ) from problem


async def _save(
    folder: Path, state: RunState, models: Mapping[str, ActorHandle], phase: Phase
) -> Path:
    final = folder / f"step-{state.step:06d}"
    if (final / COMPLETE).exists():
        _replace_state(final, state)
        return final
    temporary = folder / f".{final.name}.tmp"
    with phase("checkpoint write"):
        await _write(temporary, state, models)
    with phase("checkpoint rename"):
        shutil.rmtree(final, ignore_errors=True)  # an unfinished one
        os.replace(temporary, final)
    with phase("checkpoint mark"):
        (final / COMPLETE).write_text("")
        for path in (final / COMPLETE, final, folder):
            _fsync(path)
    return final


async def _write(temporary: Path, state: RunState, models: Mapping[str, ActorHandle]) -> None:
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for name, model in models.items():
        (temporary / name).mkdir()
        await model.call("save", temporary / name)
    _write_state(temporary / _STATE, state)
    for path in sorted(temporary.rglob("*")):
        _fsync(path)


def latest(run_dir: Path) -> Path | None:
    """The newest complete checkpoint; unfinished ones are named in a warning and ignored."""
    for _, path in sorted(_numbered(run_dir / "checkpoints"), reverse=True):
        if (path / COMPLETE).exists():
            return path
        _LOGGER.warning("checkpoint %s is unfinished (no %s file): ignored", path, COMPLETE)
    return None


def read_state(checkpoint: Path) -> RunState:
    """The driver's part. Raises ``CheckpointError`` when it cannot be read."""
    try:
        return RunState(**json.loads((checkpoint / _STATE).read_text()))
    except (OSError, ValueError, TypeError) as problem:
        raise CheckpointError(
            f"checkpoint {checkpoint} cannot be read: {problem}",
            fix="remove that folder to resume from the one before it",
        ) from problem


def _write_state(path: Path, state: RunState) -> None:
    path.write_text(json.dumps(dataclasses.asdict(state), indent=1))


def _replace_state(checkpoint: Path, state: RunState) -> None:
    temporary = checkpoint / f".{_STATE}.tmp"
    _write_state(temporary, state)
    _fsync(temporary)
    os.replace(temporary, checkpoint / _STATE)
    _fsync(checkpoint)


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    found = ((CHECKPOINT.match(path.name), path) for path in folder.iterdir())
    return [(int(match[1]), path) for match, path in found if match]


def _drop_old(folder: Path, keep: int) -> None:
    complete = [p for _, p in sorted(_numbered(folder)) if (p / COMPLETE).exists()]
    for path in complete[: max(len(complete) - keep, 0)]:
        (path / COMPLETE).unlink()  # first, so that a kill in between leaves an unfinished one
        shutil.rmtree(path)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
