"""Timeline: what every side of a run did with its time, as spans and as shares of each window.

A window is the time from one weight sync to the next. In it

- ``time/trainer_wait_frac`` is the share in which the trainer waited for rollouts,
- ``time/engine_idle_frac`` the share in which an engine ran no model call, over all engines: the
  bubble. Each engine measures it by its own clock.

``rollout/tokens_per_pass`` is how many tokens an engine's model sampled in a forward pass, where
engines tell: above 1 as far as speculative decoding guesses right.

``time/handover_s`` are the seconds of it in which memory changed hands (``placement.colocate``).

Evaluation and checkpoints are part of a window and of neither wait. A rollout is drawn as it came
home, by the driver's clock; engines and trainers by their machines' own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from axisrl.errors import RunFailed
from axisrl.runtime.actors import ActorHandle
from axisrl.runtime.busy import Activity
from axisrl.runtime.spans import Span, SpanLog, Track
from axisrl.runtime.trainer import StepReport
from axisrl.types import RolloutSummary


class _Border(NamedTuple):
    """The end of a window: when, and how long until then the trainer waited and memory moved."""

    clock: float
    waited: float
    moved: float


class Timeline:
    """Draws on ``spans`` what the actors tell; ``engines`` are asked once a window."""

    def __init__(
        self,
        spans: SpanLog,
        engines: Mapping[str, ActorHandle],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._spans = spans
        self._engines = engines
        self._clock = clock
        self._wall = wall
        self._ends: dict[str, list[float]] = {}
        """Worker -> end of the newest rollout on each of its tracks."""
        self._border = _Border(clock(), 0.0, 0.0)
        self._before: dict[str, Activity] = {}

    def rollout(self, summary: RolloutSummary) -> None:
        """Draw a rollout that came home just now."""
        handle = summary.record or summary.trace
        worker = handle.owner.partition("/")[0] if handle else "rollouts"
        began = self._wall() - summary.seconds
        lane = self._lane(worker, began, began + summary.seconds)
        self._spans.add(
            Track(worker, f"rollout {lane}"),
            Span(str(summary.outcome), began, summary.seconds),
            id=summary.id,
            tokens=summary.sampled_tokens,
            turns=summary.turns,
        )

    def learnt(self, step: int, reports: Mapping[str, StepReport]) -> None:
        """Draw an optimizer step of each model that learnt."""
        for name, report in reports.items():
            track = Track("trainer", "value" if name == "value" else "policy")
            self._spans.add(track, Span("step", report.began, report.seconds), step=step)

    async def window(self) -> dict[str, float]:
        """End a window: its times and shares. What was not measured is absent."""
        total, before = self._spans.total, self._border
        moved = total["offload"] + total["reload"]
        now = self._border = _Border(self._clock(), total["rollout"], moved)
        shares = {}
        if now.clock > before.clock:
            waited = now.waited - before.waited
            shares["time/trainer_wait_frac"] = waited / (now.clock - before.clock)
        if moved:
            shares["time/handover_s"] = moved - before.moved
        told = [await self._told(name, engine) for name, engine in self._engines.items()]
        known = [pair for pair in told if pair is not None]
        if known:
            shares["time/engine_idle_frac"] = sum(_idle(*pair) for pair in known) / len(known)
        if passes := sum(now.passes - before.passes for before, now in known):
            tokens = sum(now.tokens - before.tokens for before, now in known)
            shares["rollout/tokens_per_pass"] = tokens / passes
        return shares

    async def _told(self, name: str, engine: ActorHandle) -> tuple[Activity, Activity] | None:
        """What an engine told at the last window's end and tells now."""
        try:
            now: Activity = await engine.call("activity")
        except RunFailed:
            return None  # a dead engine is found by whoever needs it
        for span in now.spans:
            work = "calls" if span.name == "generate" else "weights"
            self._spans.add(Track(name, work), span)
        before, self._before[name] = self._before.get(name), now
        if before is None or now.clock_s <= before.clock_s or now.busy_s < before.busy_s:
            return None  # the first look, or the engine began anew
        return before, now

    def _lane(self, worker: str, began: float, end: float) -> int:
        """A track of the worker that is free from ``began`` on; those that fit best are filled
        first, so there are no more than rollouts were played at once."""
        ends = self._ends.setdefault(worker, [])
        free = [at for at, until in enumerate(ends) if until <= began]
        if not free:
            ends.append(end)
            return len(ends)
        lane = max(free, key=lambda at: ends[at])
        ends[lane] = end
        return lane + 1


def _idle(before: Activity, now: Activity) -> float:
    return 1.0 - (now.busy_s - before.busy_s) / (now.clock_s - before.clock_s)
