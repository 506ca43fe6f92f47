"""Merges numbers from many places into the plain floats of one step.

1. Means merge by weight, sums as sums, extrema as extrema, so the result does not depend on how the
   work was split or in which order the parts arrived.
2. What nobody measured is absent: a mean over no weight has no value and is not 0.

Names are ``namespace/name``; the namespaces are ``reward``, ``eval``, ``loss``, ``rollout``,
``sampler``, ``time``, ``train``, ``value`` and ``system``. It does not know what any name means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from axisrl.types import Metric


def merge(metrics: Iterable[Metric]) -> Metric | None:
    """One metric that stands for all; None when nothing was measured.

    A merged mean carries the summed weight, so merging in stages gives what merging at once gives.
    Raises ``ValueError`` when they are reduced in different ways.
    """
    parts = list(metrics)
    ways = sorted({part.reduce for part in parts})
    if len(ways) > 1:
        raise ValueError(f"one metric cannot be reduced as {' and as '.join(ways)}")
    if not parts:
        return None
    weight = _total([part.weight for part in parts])
    values = [part.value for part in parts]
    if ways == ["mean"]:
        # A part of no weight measured nothing, and its value may be NaN.
        terms = [part.value * part.weight for part in parts if part.weight]
        return Metric(value=_total(terms) / weight, weight=weight) if weight else None
    reduce = parts[0].reduce
    extremum = np.min if reduce == "min" else np.max
    value = _total(values) if reduce == "sum" else float(extremum(values))
    return Metric(value=value, weight=weight, reduce=reduce)


class MetricWindow:
    """Collects the metrics of one step."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Metric]] = {}

    def add(self, name: str, metric: Metric) -> None:
        """Raises ``ValueError`` when the name was added with another way to reduce it."""
        parts = self._parts.setdefault(name, [])
        if parts and parts[0].reduce != metric.reduce:
            raise ValueError(
                f"metric {name} was added as {parts[0].reduce} and now as {metric.reduce}"
            )
        parts.append(metric)

    def update(self, metrics: Mapping[str, Metric]) -> None:
        """Add several."""
        for name, metric in metrics.items():
            self.add(name, metric)

    def flush(self) -> dict[str, float]:
        """The merged values by name, sorted; empties the window."""
        merged = {name: merge(parts) for name, parts in sorted(self._parts.items())}
        self._parts.clear()
        return {name: metric.value for name, metric in merged.items() if metric is not None}


def _total(values: Sequence[float]) -> float:
    """Exact, hence independent of order, while all are finite; NaN and infinities go through."""
    if all(math.isfinite(value) for value in values):
        return math.fsum(values)
    return float(np.sum(values))
