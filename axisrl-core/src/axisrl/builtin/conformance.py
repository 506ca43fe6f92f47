"""Inputs with which the core's own components are tried (:mod:`axisrl.testing`)."""

from __future__ import annotations

import json
from pathlib import Path

from axisrl.runfolder import RunFolder
from axisrl.testing.cases import (
    AdvantageCase,
    DatasetCase,
    HandleStoreCase,
    LoggerCase,
    LossCase,
    LossPoint,
    PackerCase,
    RewardCase,
    VerifierCase,
)
from axisrl.types import Task, Verdict

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
    AdvantageCase(use="core/reward"),
    LossCase(
        use="core/sft",
        policy_gradient=False,
        points=(LossPoint(log_ratio=-1.5, advantage=7.0, loss=1.5, gradient=-1.0),),
    ),
    PackerCase(use="core/linear"),
    HandleStoreCase(use="core/memory"),
    HandleStoreCase(use="core/shm"),
    HandleStoreCase(use="core/shm", label="in a folder", options={"folder": "{folder}"}),
    # Ray has clocks and processes of its own; where no Ray runs, every check is skipped.
    HandleStoreCase(use="core/ray", fake_clock=False, other_process=False),
    VerifierCase(
        use="core/judge",
        options={"base_url": "https://judge.invalid/v1", "model": "judge"},
        task=Task(id="sum", data={"question": "1 + 1?", "reference": "2"}),
        gold=("2",),
        wrong=("3",),
        needs_network=True,
    ),
    RewardCase(
        use="core/sum",
        options={"weights": {"correct": 2.0}, "env_weights": {"said": 0.5, "left_out": 0}},
        verdicts={"correct": _RIGHT, "format": _RIGHT},
        worse={"correct": _WRONG, "format": _RIGHT},
        env_parts={"said": 1.0, "left_out": 3.0},
    ),
    RewardCase(
        use="core/sum",
        label="turn level",
        options={"turn_level": True},
        verdicts={"correct": _RIGHT},
        worse={"correct": _WRONG},
        env_parts={"said": 1.0},
    ),
    RewardCase(
        use="core/length",
        options={"free_tokens": 4, "coef": 0.1},
        tokens=6,
        worse_tokens=7,
        additive=False,
    ),
    RewardCase(
        use="core/overlong",
        options={"max_tokens": 8, "cache_tokens": 4},
        tokens=5,
        worse_tokens=6,
        additive=False,
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
