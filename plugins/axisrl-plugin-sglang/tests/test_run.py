"""A whole run with the fake SGLang as its engine and the local trainer, on a CPU."""

import json

import pytest
from click.testing import CliRunner

from axisrl.cli.main import main

for plugin in ("axisrl_local", "axisrl_gsm8k", "axisrl_grpo"):
    pytest.importorskip(plugin, reason=f"needs {plugin.replace('axisrl_', 'axisrl-plugin-')}")

RUN = {
    "env": {"use": "gsm8k/math", "template": "{question}"},
    "verifiers": {"correct": {"use": "gsm8k/math"}},
    "rewards": {"main": {"use": "core/sum"}},
    "advantage": {"use": "grpo/group"},
    "loss": {"use": "grpo/grpo"},
    "engine": {"use": "sglang/engine", "max_context": 128, "hand_over": True},
    "trainer": {"use": "local/trainer"},
    "placement": {"kind": "inline", "colocate": True},
    "rollout": {"group_size": 2, "max_context": 128, "sampling": {"max_tokens": 8}},
    "train": {"updates": 2, "batch_size": 4, "max_tokens_per_batch": 512},
}


@pytest.mark.usefixtures("fake_sglang")
def test_a_run_learns_from_what_sglang_samples_and_hands_memory_over(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("AXISRL_OUTPUT_DIR", str(tmp_path))
    tasks = [json.dumps({"question": f"{n} + 1 =", "answer": str(n + 1)}) for n in range(8)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(tasks))
    run = RUN | {
        "model": {"name": str(tiny.path), "device": "cpu"},
        "dataset": {"use": "core/tasks", "path": str(tmp_path / "tasks.jsonl")},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(run))  # JSON is YAML
    words = ["run", str(tmp_path / "run.yaml"), "--plain", "--name", "served"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    lines = (tmp_path / "served/metrics.jsonl").read_text().splitlines()
    first, second = (json.loads(line) for line in lines)
    assert (first["train/version"], second["train/version"]) == (1, 2)
    assert second["loss/mismatch_max"] < 1e-4
    assert "fake SGLang" in next((tmp_path / "served/logs").glob("sglang-*.log")).read_text()
