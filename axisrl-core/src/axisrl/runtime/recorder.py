"""RecorderActor: writes rollouts and traces into the run folder, off the driver.

``rollouts/step-000012.jsonl`` and ``rollouts/eval-000010.jsonl``: one
:class:`axisrl.types.RolloutRow` a line.
``traces/step-000012.safetensors``: the bytes of every trace of the step, keyed by rollout id.
A resumed run first removes what a later step of the killed one left behind.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from axisrl.protocols import HandleStore
from axisrl.runtime.actors import Actor, ActorBoot
from axisrl.runtime.records import row_of, row_to_line
from axisrl.types import Payload, RolloutRow, RolloutSummary

_STEP_FILE = re.compile(r"(?:step|eval)-(\d+)\.(?:jsonl|safetensors)$")


class RecorderActor(Actor):
    """The only writer of ``rollouts/`` and ``traces/``."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        super().__init__(boot, store)
        self._rollouts = boot.run_dir / "rollouts"
        self._traces = boot.run_dir / "traces"
        for folder in (self._rollouts, self._traces):
            folder.mkdir(parents=True, exist_ok=True)
        self.started()

    def forget_after(self, step: int) -> None:
        """Remove the files of later steps."""
        for folder in (self._rollouts, self._traces):
            for path in folder.iterdir():
                match = _STEP_FILE.match(path.name)
                if match and int(match[1]) > step:
                    path.unlink()

    async def write(
        self,
        kind: Literal["step", "eval"],
        step: int,
        summaries: Sequence[RolloutSummary],
        advantages: Mapping[str, float],
    ) -> list[RolloutRow]:
        """Write the rows (and for ``step`` the traces) and return the rows of the first few
        rollouts."""
        rows, lines, traces = [], [], dict[str, Payload]()
        for summary in summaries:
            record = await self._record(summary)
            row = row_of(step, summary, record, advantages.get(summary.id))
            lines.append(row_to_line(row, record))
            rows.append(row)
            if kind == "step" and summary.trace is not None:
                traces[summary.id] = await self.store.get(summary.trace)
        # Half a surrogate pair is not UTF-8; escaped it is the JSON it came from.
        text = "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")
        _publish(self._rollouts / f"{kind}-{step:06d}.jsonl", text)
        if traces:
            from safetensors.numpy import save

            _publish(self._traces / f"{kind}-{step:06d}.safetensors", save(traces))
        return rows[:_SAMPLE_ROWS]

    async def _record(self, summary: RolloutSummary) -> dict[str, Any]:
        if summary.record is None:
            return {"task": {"id": summary.task_id, "data": {}}, "messages": [], "verdicts": {}}
        payload: Payload = await self.store.get(summary.record)
        record = dict(json.loads(np.asarray(payload, np.uint8).tobytes()))
        if summary.turn_rewards is not None:
            record["turn_rewards"] = (await self.store.get(summary.turn_rewards)).tolist()
        return record


_SAMPLE_ROWS = 8
"""Rows that travel back to the driver for the console and the loggers' tables."""


def _publish(path: Path, blob: bytes) -> None:
    """Whole files only: a reader never sees half a step."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(blob)
    os.replace(temporary, path)
