"""``mode: mismatch``: one window's tokens, as the engine sampled them, scored by the trainer.

The window is played, or read from ``offline.rollouts``. Writes ``reports/mismatch.json`` and the
metrics ``mismatch/*`` at step 1. Nothing is trained.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from axisrl.config.use import needed
from axisrl.runtime.interrupt import unless_interrupted
from axisrl.runtime.parts import RunParts

REPORT = "reports/mismatch.json"
_STEP = 1
_SHOWN = ("tokens", "abs_mean", "abs_max", "k1", "k3", "ratio_min", "ratio_max", "cosine")


class MismatchLoop:
    """A :class:`axisrl.runtime.modes.RunLoop`."""

    def __init__(self, parts: RunParts, interrupt: asyncio.Event) -> None:
        self.parts = parts
        self.interrupt = interrupt
        self.inside_window = False
        self._comparer = needed(parts.comparer, "trainer")
        self._found: Mapping[str, Any] = {}

    async def run(self) -> None:
        """Compare, unless a resumed run has already."""
        parts = self.parts
        if parts.state.pending is None:
            return
        await parts.memory.play()
        with parts.spans.span("rollout", step=_STEP):
            window = await unless_interrupted(self.interrupt, parts.source.collect())
        async with parts.memory.turn("comparer"):
            with parts.spans.span("score", step=_STEP):
                work = self._comparer.call("compare", window.groups)
                self._found = await unless_interrupted(self.interrupt, work)
        await parts.record(_STEP, window, window.groups, {})
        self._write()
        parts.loggers.scalars(_STEP, {**parts.measure(window).flush(), **_metrics(self._found)})
        parts.state = dataclasses.replace(parts.state, step=_STEP, pending=None)

    def report(self) -> list[str]:
        """A short table, and where the whole of it is."""
        if not self._found:
            return []
        rows = [["tokens at", *_SHOWN], *map(_cells, _rows(self._found))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        ]
        return [*table, f"the worst tokens are in {self.parts.run_dir / REPORT}"]

    def _write(self) -> None:
        config, path = self.parts.config, self.parts.run_dir / REPORT
        facts = {
            "model": config.model.name,
            "engine": config.engine.use if config.engine and not config.offline.rollouts else None,
            "trainer": needed(config.trainer, "trainer").use,
            "rollouts": config.offline.rollouts or None,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**facts, **self._found}, indent=1, ensure_ascii=False)
        # Half a surrogate pair is not UTF-8; escaped it is the JSON it came from.
        path.write_bytes(text.encode(errors="backslashreplace"))


def _metrics(found: Mapping[str, Any]) -> dict[str, float]:
    """Everything over all tokens; of the parts the mean."""
    values = {f"mismatch/{name}": float(value) for name, value in found["all"].items()}
    for number, part in enumerate(found["by_position"], start=1):
        if "abs_mean" in part:
            values[f"mismatch/position_{number}_abs_mean"] = part["abs_mean"]
    for part in found["by_temperature"]:
        if "abs_mean" in part:
            values[f"mismatch/temperature_{part['temperature']:g}_abs_mean"] = part["abs_mean"]
    return values


def _rows(found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, float]]]:
    yield "all", found["all"]
    for part in found["by_position"]:
        yield f"{part['first']}-{part['last']}", part
    if len(found["by_version"]) > 1:
        for part in found["by_version"]:
            yield f"version {part['versions']}", part


def _cells(row: tuple[str, Mapping[str, float]]) -> list[str]:
    label, values = row
    return [label, *(f"{values[name]:.4g}" if name in values else "-" for name in _SHOWN)]
