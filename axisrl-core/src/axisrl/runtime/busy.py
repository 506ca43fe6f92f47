"""BusyClock: how long an actor worked, and when.

It is asked from afar: all it tells is measured by its own machine's clocks, so shares of its time
need no clock of another machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from axisrl.runtime.spans import Span

_NEAR_S = 0.001
"""Spans nearer than this are drawn as one; ``busy_s`` is exact all the same."""
_MOST_SPANS = 500
"""Spans of one report: what a very busy actor did beyond is in ``busy_s`` alone."""


class Activity(NamedTuple):
    """What an actor did until it was asked."""

    clock_s: float
    """Time there, from any beginning."""
    busy_s: float
    """Seconds in which anything went on, since the actor began."""
    spans: tuple[Span, ...]
    """Those seconds since it was last asked, and what else was noted, by the wall clock there."""
    tokens: int = 0
    """Sampled since the actor began, in results that tell their forward passes."""
    passes: int = 0
    """Those forward passes."""


class BusyClock:
    """Runs while anything goes on; belongs to one event loop.

    ``clock`` is monotonic, ``wall`` counts from the epoch.
    """

    def __init__(
        self,
        name: str,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``name`` is what the work is called."""
        self._name = name
        self._clock = clock
        self._wall = wall
        self._inside = 0
        self._since = (0.0, 0.0)
        self._busy_s = 0.0
        self._work: list[Span] = []
        self._noted: list[Span] = []

    @contextmanager
    def busy(self) -> Iterator[None]:
        """The block is work; blocks may overlap."""
        if not self._inside:
            self._since = (self._clock(), self._wall())
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._stop()

    @contextmanager
    def noted(self, name: str) -> Iterator[None]:
        """The block is no work, but shall be seen."""
        begun, wall = self._clock(), self._wall()
        try:
            yield
        finally:
            self._noted.append(Span(name, wall, self._clock() - begun))

    def report(self) -> Activity:
        """What was done; work that goes on counts until now."""
        if self._inside:
            self._stop()
            self._since = (self._clock(), self._wall())
        spans = (*self._work, *self._noted)
        self._work, self._noted = [], []
        return Activity(self._clock(), self._busy_s, spans)

    def _stop(self) -> None:
        begun, wall = self._since
        seconds = self._clock() - begun
        self._busy_s += seconds
        before = self._work[-1] if self._work else None
        if before and wall - before.began - before.seconds < _NEAR_S:
            self._work[-1] = before._replace(seconds=wall + seconds - before.began)
        elif len(self._work) < _MOST_SPANS:
            self._work.append(Span(self._name, wall, seconds))
