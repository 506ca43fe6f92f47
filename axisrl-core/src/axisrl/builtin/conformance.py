"""Inputs with which the core's own components are tried (:mod:`axisrl.testing`)."""

from __future__ import annotations

import json
from pathlib import Path

from axisrl.runfolder import RunFolder
from axisrl.testing.cases import (
    DatasetCase,
    HandleStoreCase,
    LoggerCase,
    PackerCase,
    RewardCase,
)
from axisrl.types import Verdict

_RIGHT, _WRONG = Verdict(score=1.0, passed=True), Verdict(score=0.0)
_TASKS = "".join(
    json.dumps({"id": f"t{n}", "question": f"{n} + 1?", "answer": n + 1}) + "\n" for n in range(4)
)


def _read_jsonl(run_dir: Path) -> dict[int, dict[str, float]]:
    return {line["step"]: line for line in RunFolder(run_dir).metrics}


def _read_tensorboard(run_dir: Path) -> dict[int, dict[str, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    steps: dict[int, dict[str, float]] = {}
    for folder in sorted({path.parent for path in run_dir.rglob("events.out.tfevents.*")}):
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        for name in events.Tags()["scalars"]:
            for event in events.Scalars(name):
                steps.setdefault(event.step, {})[name] = event.value
    return dict(sorted(steps.items()))


CASES = [
    PackerCase(use="core/linear"),
    HandleStoreCase(use="core/memory"),
    HandleStoreCase(use="core/shm"),
    HandleStoreCase(use="core/shm", label="in a folder", options={"folder": "{folder}"}),
    # Ray has clocks and processes of its own; where no Ray runs, every check is skipped.
    HandleStoreCase(use="core/ray", fake_clock=False, other_process=False),
    RewardCase(
        use="core/sum",
        options={"weights": {"correct": 2.0}, "env_weights": {"said": 0.5, "left_out": 0}},
        verdicts={"correct": _RIGHT, "format": _RIGHT},
        worse={"correct": _WRONG, "format": _RIGHT},
        env_parts={"said": 1.0, "left_out": 3.0},
    ),
    DatasetCase(
        use="core/tasks",
        options={"path": "{folder}/tasks.jsonl"},
        files={"tasks.jsonl": _TASKS},
        fields=("question", "answer"),
    ),
    LoggerCase(use="core/console", options={"plain": True}),
    LoggerCase(use="core/jsonl", read=_read_jsonl),
    LoggerCase(use="core/tensorboard", read=_read_tensorboard),
    LoggerCase(use="core/wandb", label="disabled", options={"mode": "disabled"}),
    LoggerCase(
        use="core/wandb", label="offline", options={"mode": "offline"}, stable_state=("id",)
    ),
]
