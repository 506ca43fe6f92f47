"""Replay: the training rollouts of a saved run as windows, in their order, over and over.

1. :class:`ReplayActor` indexes ``rollouts/step-*.jsonl`` and puts the rows and traces of the groups
   it is asked for into the store.
2. :class:`ReplaySource` asks for the next groups; where it stands is one number.

Tokens, log-probabilities, versions and rewards are those of the saved run; advantages are computed
again, by this run's advantage. It writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axisrl.config.schema import RunConfig
from axisrl.errors import ConfigError, RunFailed
from axisrl.protocols import HandleStore
from axisrl.runtime.actors import Actor, ActorBoot, ActorHandle
from axisrl.runtime.collect import Window, keep_group
from axisrl.types import Outcome, RolloutSummary

_RECORD = ("task", "messages", "verdicts")


@dataclass(slots=True)
class _Group:
    """Where the members of one group stand."""

    rollouts: Path
    lines: list[tuple[int, int]] = field(default_factory=list)
    """Start and length of each, in bytes."""


class ReplayActor(Actor):
    """Reads one run folder."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        super().__init__(boot, store)
        self._groups = index_groups(Path(boot.config.offline.rollouts).expanduser())
        self.started()

    def count(self) -> int:
        """Groups in the folder."""
        return len(self._groups)

    async def load(self, numbers: Sequence[int]) -> list[list[RolloutSummary]]:
        """Groups by their place in the folder, in the store. Raises ``RunFailed`` when a trace is
        missing."""
        return [await self._load(self._groups[number % len(self._groups)]) for number in numbers]

    async def _load(self, group: _Group) -> list[RolloutSummary]:
        from safetensors import safe_open

        rows = []
        with group.rollouts.open("rb") as file:
            for start, length in group.lines:
                file.seek(start)
                rows.append(json.loads(file.read(length)))
        traces = group.rollouts.parents[1] / "traces" / f"{group.rollouts.stem}.safetensors"
        if not traces.is_file():
            raise RunFailed(f"{traces} is missing: {group.rollouts.name} cannot be replayed")
        with safe_open(traces, framework="np") as arrays:
            known = set(arrays.keys())
            return [
                await self._summary(row, arrays.get_tensor(row["summary"]["id"]))
                for row in rows
                if row["summary"]["id"] in known
            ]

    async def _summary(self, row: dict[str, Any], trace: NDArray[np.uint8]) -> RolloutSummary:
        facts = dict(row["summary"])
        record = json.dumps({name: row[name] for name in _RECORD}).encode()
        turns = row.get("turn_rewards")
        facts |= {
            "outcome": Outcome(facts["outcome"]),
            "versions": tuple(facts["versions"]),
            "trace": await self.put(trace),
            "record": await self.put_bytes(record),
            "turn_rewards": await self.put(np.asarray(turns, np.float32)) if turns else None,
        }
        return RolloutSummary(**facts)


class ReplaySource:
    """A :class:`axisrl.runtime.collect.WindowSource` over a :class:`ReplayActor`."""

    def __init__(self, config: RunConfig, replayer: ActorHandle) -> None:
        self._config = config
        self._replayer = replayer
        self._cursor = 0
        self.version = 0

    async def close(self) -> None:
        """Between two windows nothing goes on."""

    async def collect(self) -> Window:
        """The next groups, those that filters drop replaced by later ones. Raises ``RunFailed``
        when a whole pass over the folder does not fill a window: no group is in one twice."""
        window, needed = Window(), self._config.groups_per_window
        there = await self._replayer.call("count")
        last = self._cursor + there
        while len(window.groups) < needed and self._cursor < last:
            wanted = range(self._cursor, min(last, self._cursor + needed - len(window.groups)))
            for members in await self._replayer.call("load", list(wanted)):
                window.played += members
                keep_group(members, self._config, window)
            self._cursor = wanted.stop
        if len(window.groups) < needed:
            raise RunFailed(
                f"offline.rollouts: {there} saved groups gave {len(window.groups)} of the {needed} "
                f"usable ones of a window; dropped: {dict(window.dropped)}",
                fix="a smaller train.batch_size or train.updates_per_sync, or "
                "train.zero_std_groups: keep",
            )
        return window

    def state_dict(self) -> dict[str, Any]:
        """How many groups were read."""
        return {"cursor": self._cursor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._cursor = int(state.get("cursor", 0))


def check_folder(config: RunConfig, run_dir: Path) -> None:
    """Raises ``ConfigError`` when ``offline.rollouts`` is the run's own folder or holds no
    rollouts: before anything is started, or deleted by ``--overwrite``."""
    if not config.offline.rollouts:
        return
    folder = Path(config.offline.rollouts).expanduser()
    if folder.resolve() == run_dir.resolve():
        raise ConfigError(
            f"offline.rollouts is the folder of this run itself, {run_dir}",
            fix="give the run another name or --run-dir",
        )
    if not _step_files(folder):
        raise _holds_none(folder)


def index_groups(run_dir: Path) -> list[_Group]:
    """Every group of a run folder's training rollouts, in the order they were trained on.

    Raises ``ConfigError`` when the folder holds none, or a line that is not a rollout.
    """
    groups: dict[tuple[str, int], _Group] = {}
    for path in _step_files(run_dir):
        start = 0
        with path.open("rb") as file:
            for line in file:
                number = _group_number(path, line)
                found = groups.setdefault((path.name, number), _Group(path))
                found.lines.append((start, len(line)))
                start += len(line)
    if not groups:
        raise _holds_none(run_dir)
    return list(groups.values())


def _step_files(run_dir: Path) -> list[Path]:
    return sorted((run_dir / "rollouts").glob("step-*.jsonl"))


def _holds_none(run_dir: Path) -> ConfigError:
    return ConfigError(
        f"offline.rollouts: {run_dir} holds no rollouts in rollouts/step-*.jsonl",
        fix="give the folder of a run that trained (`axisrl runs`)",
    )


def _group_number(path: Path, line: bytes) -> int:
    try:
        return int(json.loads(line)["summary"]["group"])
    except (ValueError, KeyError, TypeError) as problem:
        raise ConfigError(f"offline.rollouts: {path} holds a line that is no rollout") from problem
