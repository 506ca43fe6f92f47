"""Fixtures that more than one folder of tests needs."""

import json
from pathlib import Path

import pytest

HOSTILE = "<script>alert(1)</script> \x1b[31mred\u202e #### 7"


@pytest.fixture
def output_root(tmp_path, monkeypatch) -> Path:
    root = tmp_path / "outputs"
    root.mkdir()
    monkeypatch.setenv("AXISRL_OUTPUT_DIR", str(root))
    return root


@pytest.fixture
def run_dir(output_root) -> Path:
    """A finished run of three steps, evaluated before and after; one answer tries to break out."""
    return record(output_root / "demo")


def record(folder: Path, **manifest: object) -> Path:
    (folder / "rollouts").mkdir(parents=True)
    facts = {
        "name": folder.name,
        "recipe": "gsm8k/grpo-cpu",
        "created": 100.0,
        "state": "completed",
    }
    facts["command"] = ["axisrl", "run", "gsm8k/grpo-cpu"]
    write_json(folder / "manifest.json", facts | manifest)
    write_lines(
        folder / "metrics.jsonl",
        [
            {"step": 0, "time": 100.0, "eval/accuracy": 0.0, "eval/accuracy_low": 0.0},
            {"step": 1, "time": 110.0, "reward/mean": 0.125, "loss/total": float("nan")},
            {"step": 2, "time": 120.0, "reward/mean": 0.25},
            {"step": 3, "time": 130.0, "reward/mean": 0.75, "eval/accuracy": 0.5},
        ],
    )
    write_lines(folder / "rollouts/eval-000000.jsonl", [row(0, "a", HOSTILE), row(0, "b", "no")])
    write_lines(
        folder / "rollouts/eval-000003.jsonl",
        [row(3, "a", "#### 7", passed=True), row(3, "b", "still no"), row(3, "a", "sampled")],
    )
    write_lines(folder / "rollouts/step-000001.jsonl", [row(1, "c", "x", member=m) for m in (0, 1)])
    return folder


def row(step: int, task: str, answer: str, *, member: int = 0, passed: bool = False) -> dict:
    summary = {"id": f"{step}-{task}-{member}", "task_id": task, "group": 0, "member": member}
    summary |= {"outcome": "completed", "reward": float(passed), "passed": passed, "parts": {}}
    messages = [{"role": "user", "content": f"question {task}"}]
    messages.append({"role": "assistant", "content": answer})
    return {"step": step, "summary": summary, "messages": messages, "verdicts": {}}


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def write_lines(path: Path, rows: list) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
