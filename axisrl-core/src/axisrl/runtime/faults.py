"""Faults on purpose: which process dies at which point of a run.

1. A point is an edge of a phase of a step: ``before`` it, ``during`` it (some time after it began,
   at its end at the latest) or ``after`` it. Phases are the spans of
   :class:`axisrl.runtime.spans.SpanLog`, those inside a checkpoint included.
2. A fault ends the driver, the store, or an actor that has a process of its own; processes by
   SIGKILL, at once, as an out-of-memory killer would.
3. It is written to the ledger, beside the plan, and synced before anything dies: a run that goes on
   does not suffer the same fault twice, and whoever judges it knows what happened.

It heals nothing. Plans are made by :mod:`axisrl.chaos.plan`, or by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from axisrl.errors import UsageError
from axisrl.protocols import HandleStore
from axisrl.runtime.actors import ActorHandle

Edge = Literal["before", "during", "after"]
EDGES: tuple[Edge, ...] = ("before", "during", "after")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``target`` dies at one point of a run."""

    step: int
    """Of the phase, as ``events.jsonl`` has it."""
    phase: str
    edge: Edge
    target: str = "driver"
    """``driver``, ``store``, or the role of an actor: ``engine``, ``trainer``, ``rollout``, ..."""
    rank: int = 0
    """Which of several actors of that role; counted round when there are fewer."""
    delay_s: float = 0.0
    """With ``during``: how long after the phase began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """What shall happen to a run, and the file that holds what has."""

    faults: Sequence[Fault]
    ledger: Path


class Injector:
    """Makes the faults of a plan happen in this process's run."""

    def __init__(self, plan: FaultPlan) -> None:
        done = {entry.fault for entry in read_ledger(plan.ledger)}
        self._left = [fault for fault in plan.faults if fault not in done]
        self._ledger = plan.ledger
        self._actors: Mapping[str, ActorHandle] = {}
        self._store: HandleStore | None = None
        self._here = True
        self._waiting: dict[Fault, asyncio.TimerHandle] = {}
        self._closing: asyncio.Future[None] | None = None

    def aim(self, actors: Mapping[str, ActorHandle], store: HandleStore, *, here: bool) -> None:
        """Know what can be hit: ``actors`` by name, as in ``engine 0``, those that live at that
        time; ``here`` is whether all of them are on this machine."""
        self._actors, self._store, self._here = actors, store, here

    def border(self, edge: Literal["before", "after"], phase: str, step: int) -> None:
        """To be called when a phase begins, and when it ended without an error."""
        for fault in [f for f in self._left if (f.phase, f.step) == (phase, step)]:
            if fault.edge == edge:
                self._inject(fault)
            elif fault.edge == "during" and edge == "before":
                loop = asyncio.get_running_loop()
                self._waiting[fault] = loop.call_later(fault.delay_s, self._inject, fault)
            elif fault.edge == "during":
                self._inject(fault)

    def _inject(self, fault: Fault) -> None:
        if timer := self._waiting.pop(fault, None):
            timer.cancel()
        if fault not in self._left:
            return
        self._left.remove(fault)
        name = self._victim(fault)
        _append(self._ledger, LedgerEntry(fault=fault, victim=name))
        if name == "driver":
            os.kill(os.getpid(), signal.SIGKILL)
        elif name == "store" and self._store is not None:
            self._closing = asyncio.ensure_future(self._store.close())
        elif name:
            self._end(self._actors[name])

    def _victim(self, fault: Fault) -> str:
        if fault.target in ("driver", "store"):
            return fault.target
        there = sorted(
            name
            for name, actor in self._actors.items()
            if _role_of(name) == fault.target and actor.pid != os.getpid()
        )
        return there[fault.rank % len(there)] if there else ""

    def _end(self, actor: ActorHandle) -> None:
        """It may have died of itself by now."""
        if not self._here:
            actor.kill()
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(actor.pid, signal.SIGKILL)


def _role_of(name: str) -> str:
    """``service`` of ``service-search 1``; every named service is one."""
    return name.partition(" ")[0].partition("-")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """A fault whose point was reached. ``victim`` is empty when there was nobody to hit."""

    fault: Fault
    victim: str


def read_plan(path: Path) -> FaultPlan:
    """The plan in a JSON file, a list of faults. Its ledger is the ``.jsonl`` file beside it.

    Raises ``UsageError`` for a file that is none.
    """
    try:
        faults = [Fault(**entry) for entry in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError) as problem:
        raise UsageError(
            f"{path} is no plan of faults: {problem}",
            fix='it holds a list such as [{"step": 1, "phase": "train", "edge": "before"}]',
        ) from problem
    wrong = [fault.edge for fault in faults if fault.edge not in EDGES]
    if wrong:
        raise UsageError(f"{path}: edge {wrong[0]!r} is not one of {', '.join(EDGES)}")
    return FaultPlan(faults=faults, ledger=path.with_suffix(".jsonl"))


def write_plan(path: Path, faults: Sequence[Fault]) -> None:
    """What :func:`read_plan` reads."""
    path.write_text(json.dumps([dataclasses.asdict(fault) for fault in faults], indent=1))


def read_ledger(path: Path) -> list[LedgerEntry]:
    """What has happened so far; nothing where the file is not there."""
    if not path.exists():
        return []
    found: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    return [LedgerEntry(victim=one.pop("victim"), fault=Fault(**one)) for one in found]


def _append(path: Path, entry: LedgerEntry) -> None:
    line = {**dataclasses.asdict(entry.fault), "victim": entry.victim}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())
