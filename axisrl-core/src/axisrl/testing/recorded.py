"""Writes a small finished run into a folder, for whoever reads run folders. Nothing is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from axisrl.runtime.manifest import new_manifest, write_manifest
from axisrl.runtime.records import record_to_json, row_of, row_to_line
from axisrl.runtime.spans import SpanLog
from axisrl.types import Message, Outcome, RolloutSummary, Task, Verdict

_CONFIG = """\
name: recorded
seed: 0
model: {name: tiny}
dataset: fakes/count
env: fakes/echo
verifiers: {exact: fakes/exact}
advantage: fakes/group
loss: fakes/plain
engine: fakes/scripted
trainer: fakes/scripted
rollout: {group_size: 4}
train: {updates: 3, batch_size: 8}
"""
_GROUPS, _MEMBERS = 2, 4
_BEGAN = 1_700_000_000.0


def recorded_run(folder: Path, *, name: str = "recorded", steps: int = 3) -> Path:
    """``folder / name``: config, manifest, metrics, events, rollouts of every step and of an
    evaluation at the end.

    Step s has 2 groups of 4; the first s members of a group are right, so the reward rises.
    """
    run_dir = folder / name
    (run_dir / "rollouts").mkdir(parents=True)
    (run_dir / "config.yaml").write_text(_CONFIG, encoding="utf-8")
    manifest = new_manifest(name, "fakes/recorded", ["axisrl", "run", "fakes/recorded"], {})
    manifest |= {"created": _BEGAN, "state": "completed", "step": steps}
    write_manifest(run_dir, manifest)
    _write_lines(run_dir / "metrics.jsonl", [json.dumps(_metrics(s)) for s in range(1, steps + 1)])
    _write_events(run_dir, steps)
    for step in range(1, steps + 1):
        lines = [_line(step, group, m) for group in range(_GROUPS) for m in range(_MEMBERS)]
        _write_lines(run_dir / "rollouts" / f"step-{step:06d}.jsonl", lines)
    evaluation = [_line(steps, group, 0, prefix="eval") for group in range(_GROUPS)]
    _write_lines(run_dir / "rollouts" / f"eval-{steps:06d}.jsonl", evaluation)
    return run_dir


def _metrics(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "time": _BEGAN + 10.0 * step,
        "reward/mean": min(step, _MEMBERS) / _MEMBERS,
        "loss/total": -0.1 * step,
        "train/grad_norm": 1.0 / step,
    }


def _write_events(run_dir: Path, steps: int) -> None:
    spans = SpanLog(run_dir / "events.jsonl")
    for step in range(1, steps + 1):
        for name in ("rollout", "train", "sync"):
            with spans.span(name, step=step):
                pass
    spans.close()


def _line(step: int, group: int, member: int, prefix: str = "step") -> str:
    right = member < step
    summary = RolloutSummary(
        id=f"{prefix}-{step}-{group}-{member}",
        task_id=f"count-{group}",
        group=group,
        member=member,
        outcome=Outcome.COMPLETED,
        reward=float(right),
        parts={"exact": float(right)},
        passed=right,
        turns=1,
        sampled_tokens=2,
        prompt_tokens=12,
        versions=(step - 1, step - 1),
    )
    task = Task(id=summary.task_id, data={"question": f"Say {group}.", "answer": str(group)})
    messages = (
        Message(role="user", content=f"Say {group}."),
        Message(role="assistant", content=str(group) if right else "I would rather not."),
    )
    record = record_to_json(task, messages, {"exact": Verdict(score=float(right), passed=right)})
    advantage = None if prefix == "eval" else float(right) - min(step, _MEMBERS) / _MEMBERS
    return row_to_line(row_of(step, summary, record, advantage), record)


def _write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
