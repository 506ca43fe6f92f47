"""What every benchmark prints: the machine, the versions, medians with their spread, and a row to
paste into ``docs/benchmarks.md``.

It measures nothing.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("axisrl-core", "axisrl-plugin-local", "torch", "transformers", "trl", "accelerate")


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and most of repeated measurements."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises ``ValueError`` without values."""
        if not values:
            raise ValueError("nothing was measured")
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.low)} to {short(self.high)})"


def short(value: float) -> str:
    """Three significant digits, thousands with a comma: 0.0123, 1.23, 12.3, 123, 12,345."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 1 else f"{value:.3g}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up in a terminal."""
    lines = [list(header), ["---"] * len(header), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    padded = (
        [cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines
    )
    return "\n".join("| " + " | ".join(line) + " |" for line in padded)


def markdown_row(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def today() -> str:
    """The date, as in 2025-01-31."""
    return datetime.date.today().isoformat()


def cpu_name() -> str:
    """The processor's name, and how many of its threads this process may use."""
    return f"{_model_name(Path('/proc/cpuinfo'))}, {usable_cpus()} CPUs"


def usable_cpus() -> int:
    """CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions(names: Sequence[str] = PACKAGES) -> str:
    """``name version`` of those that are installed, and Python's."""
    found = [f"Python {platform.python_version()}"]
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def load_average() -> str:
    """The one-minute load, which tells whether the machine was this benchmark's own."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def _model_name(cpuinfo: Path) -> str:
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
