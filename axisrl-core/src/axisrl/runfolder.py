"""Reads a run's folder: manifest, metrics, rollouts, checkpoints. Standard library only.

A folder may belong to a run that goes on, was killed half-way through a line, or was resumed from
an earlier step: readers here give what is whole and current. Writing is
:mod:`axisrl.runtime.recorder`'s.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from axisrl.errors import UsageError
from axisrl.runtime.manifest import State, read_manifest

RolloutKind = Literal["step", "eval"]

_ROLLOUT_FILE = re.compile(r"(step|eval)-(\d+)\.jsonl$")
CHECKPOINT = re.compile(r"step-(\d{6,})$")
"""Name of a checkpoint's folder under ``checkpoints/``."""
COMPLETE = "COMPLETE"
"""The file that ends a checkpoint; a folder without it is an unfinished one."""
_TAIL_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run on disk. Every property reads the disk anew, so a watcher sees a run go on."""

    path: Path

    @property
    def name(self) -> str:
        """The folder's name, which is also what ``axisrl runs show`` takes."""
        return self.path.name

    @property
    def manifest(self) -> dict[str, Any]:
        """``manifest.json``; empty when it is not there or not readable."""
        return read_manifest(self.path) or {}

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One dict a step, steps increasing. Lines a resumed run has written again replace what
        the interrupted one wrote from that step on."""
        steps: list[dict[str, Any]] = []
        for line in read_jsonl(self.path / "metrics.jsonl"):
            _put(steps, line)
        return steps

    @property
    def last_metrics(self) -> dict[str, Any]:
        """The newest step's metrics from the end of the file; empty when there are none."""
        return next(self._newest_metrics(), {})

    @property
    def last_reward(self) -> float | None:
        """The newest mean training reward; of the updates of one window the first has it."""
        found = (reward_of(entry) for entry in self._newest_metrics())
        return next((reward for reward in found if reward is not None), None)

    def rollout_steps(self, kind: RolloutKind) -> list[int]:
        """Steps that have a rollout file of this kind, increasing."""
        return sorted(step for found, step, _ in self._rollout_files() if found == kind)

    def rollouts(self, kind: RolloutKind, step: int) -> list[dict[str, Any]]:
        """The rows (:class:`axisrl.types.RolloutRow` as dicts) of one file; empty when absent."""
        for found, number, path in self._rollout_files():
            if (found, number) == (kind, step):
                return list(read_jsonl(path))
        return []

    @property
    def checkpoints(self) -> list[int]:
        """Steps of the complete checkpoints, increasing."""
        try:
            folders = list((self.path / "checkpoints").iterdir())
        except OSError:
            return []
        return sorted(
            int(match[1])
            for folder in folders
            if (match := CHECKPOINT.match(folder.name)) and (folder / COMPLETE).exists()
        )

    @property
    def newest_checkpoint(self) -> Path | None:
        """Folder of the newest complete checkpoint."""
        steps = self.checkpoints
        return self.path / "checkpoints" / f"step-{steps[-1]:06d}" if steps else None

    @property
    def stamp(self) -> str:
        """Changes whenever a file that a reader shows does."""
        watched = [self.path / "manifest.json", self.path / "metrics.jsonl"]
        watched += [path for _, _, path in self._rollout_files()]
        parts: list[str] = [self.state]
        for path in watched:
            try:
                status = path.stat()
            except OSError:
                continue
            parts.append(f"{path.name}:{status.st_mtime_ns}:{status.st_size}")
        return "|".join(parts)

    @property
    def state(self) -> State:
        """As the manifest says; a run that says it runs but whose process is gone was
        interrupted."""
        manifest = self.manifest
        state = manifest.get("state", "interrupted")
        if state == "running" and _is_gone(manifest):
            return "interrupted"
        return cast(State, state)

    @property
    def command(self) -> str:
        """The command line that started the run; empty when unknown."""
        return shlex.join(self.manifest.get("command", ()))

    @property
    def resume_command(self) -> str:
        """What to type to go on; empty when the run is over, goes on, or has no checkpoint."""
        if self.state not in ("failed", "interrupted") or not self.checkpoints:
            return ""
        return f"axisrl run --resume {shlex.quote(str(self.path))}"

    def _newest_metrics(self) -> Iterator[dict[str, Any]]:
        """Steps from the end of the file backwards, as far as its last bytes reach."""
        try:
            with (self.path / "metrics.jsonl").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return
        yield from (entry for line in reversed(lines) if (entry := _parse(line)))

    def _rollout_files(self) -> Iterator[tuple[str, int, Path]]:
        try:
            paths = sorted((self.path / "rollouts").iterdir())
        except OSError:
            return
        for path in paths:
            if match := _ROLLOUT_FILE.match(path.name):
                yield match[1], int(match[2]), path


def reward_of(metrics: dict[str, Any]) -> float | None:
    """The mean training reward among a step's metrics, whatever else was measured."""
    value = metrics.get("reward/mean")
    return float(value) if isinstance(value, int | float) else None


def list_runs(root: Path) -> list[RunFolder]:
    """Folders under ``root`` that hold a manifest, newest first."""
    try:
        folders = [entry for entry in root.iterdir() if (entry / "manifest.json").is_file()]
    except OSError:
        return []
    return sorted(map(RunFolder, folders), key=_age, reverse=True)


def find_run(root: Path, run: str | None) -> RunFolder:
    """A run by folder, by name under ``root``, or the newest one for None.

    Raises ``UsageError`` naming the nearest run, or where runs are looked for.
    """
    runs = list_runs(root)
    if run is None:
        if not runs:
            raise UsageError(f"there is no run in {root}", fix="start one: axisrl run RECIPE")
        return runs[0]
    for folder in (root / run, Path(run)):
        if (folder / "manifest.json").is_file():
            return RunFolder(folder.resolve())
    import difflib

    near = difflib.get_close_matches(run, [found.name for found in runs], n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"no run {run!r} in {root}, and no such folder with a manifest.json",
        fix=f"{hint}list them with: axisrl runs",
    )


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """The whole JSON objects of a file, in order; a line that is still being written is left
    out."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if entry := _parse(line):
                    yield entry
    except OSError:
        return


def _parse(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _put(steps: list[dict[str, Any]], line: dict[str, Any]) -> None:
    step = line.get("step")
    if not isinstance(step, int):
        return
    while steps and steps[-1]["step"] > step:
        steps.pop()
    if steps and steps[-1]["step"] == step:
        steps[-1] = steps[-1] | line
    else:
        steps.append(line)


def _age(run: RunFolder) -> tuple[float, str]:
    return float(run.manifest.get("created", 0.0)), run.name


def _is_gone(manifest: dict[str, Any]) -> bool:
    pid, host = manifest.get("pid"), manifest.get("hardware", {}).get("host")
    if not isinstance(pid, int) or host != platform.node():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
