"""Draws the faults of one run: a point and a target in every so many updates, from a seed alone.

Points are those that a run without faults went through, so every fault is reached, and a fault
``during`` a phase comes within the time that the phase took there.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from axisrl.errors import UsageError
from axisrl.runtime.faults import EDGES, Fault
from axisrl.runtime.spans import DRIVER, read_events, tracks_of

TARGETS: Mapping[str, str] = {
    "engine": "engine",
    "trainer": "trainer",
    "value": "value",
    "worker": "rollout",
    "verifier": "verifier",
    "reward": "reward",
    "service": "service",
    "recorder": "recorder",
    "store": "store",
    "driver": "driver",
}
"""What a user calls it -> the target of a fault."""
_MOST_RANKS = 64


class Phase(NamedTuple):
    """A phase of a step as it went, in seconds; ``began`` since the epoch."""

    step: int
    name: str
    began: float
    seconds: float


class Chaos(NamedTuple):
    """What is killed, and how often."""

    targets: Sequence[str]
    every: int
    """Updates that share one fault."""
    updates: int
    """Of the whole run."""


def targets_of(given: str) -> list[str]:
    """The targets in ``engine,worker``. Raises ``UsageError`` for one that is not known."""
    names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    unknown = [name for name in names if name not in TARGETS]
    if unknown or not names:
        raise UsageError(
            f"--kill {unknown[0]}: there is no such target" if unknown else "--kill names nothing",
            fix=f"choose among {', '.join(TARGETS)}",
        )
    return names


def phases_of(run_dir: Path) -> list[Phase]:
    """The driver's phases in a run's ``events.jsonl``, in the order they ended."""
    events = read_events(run_dir / "events.jsonl")
    driver = tracks_of(events).get(DRIVER)
    return [
        Phase(event["args"]["step"], event["name"], event["ts"] / 1e6, event["dur"] / 1e6)
        for event in events
        if event["ph"] == "X" and (event["pid"], event["tid"]) == driver
    ]


def draw_faults(phases: Sequence[Phase], chaos: Chaos, seed: int) -> list[Fault]:
    """One fault in each block of ``every`` updates; what is before the first counts to the first
    block."""
    drawn = random.Random(f"chaos {seed}")
    faults = []
    for first in range(1, chaos.updates + 1, chaos.every):
        block = range(first if first > 1 else 0, first + chaos.every)
        steps = sorted({phase.step for phase in phases if phase.step in block})
        if steps:
            step = drawn.choice(steps)
            there = [phase for phase in phases if phase.step == step]
            faults.append(_fault(drawn, drawn.choice(there), chaos.targets))
    return faults


def _fault(drawn: random.Random, phase: Phase, targets: Sequence[str]) -> Fault:
    edge = drawn.choice(EDGES)
    delay = round(drawn.uniform(0.0, phase.seconds), 4)
    return Fault(
        step=phase.step,
        phase=phase.name,
        edge=edge,
        target=TARGETS[drawn.choice(targets)],
        rank=drawn.randrange(_MOST_RANKS),
        delay_s=delay if edge == "during" else 0.0,
    )
