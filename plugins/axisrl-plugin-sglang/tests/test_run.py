"""Whole runs with the fake SGLang as their engine, on a CPU."""

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
MIXTURE = {
    "hidden_size": 32,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
    "tie_word_embeddings": True,
}


@pytest.fixture
def run(fake_sglang, tmp_path, monkeypatch):
    """``run(model, **parts)``: the metrics of each update."""
    monkeypatch.setenv("AXISRL_OUTPUT_DIR", str(tmp_path))
    tasks = [json.dumps({"question": f"{n} + 1 =", "answer": str(n + 1)}) for n in range(8)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(tasks))

    def run(model, **parts):
        config = RUN | {
            "model": {"name": str(model.path), "device": "cpu"},
            "dataset": {"use": "core/tasks", "path": str(tmp_path / "tasks.jsonl")},
        }
        (tmp_path / "run.yaml").write_text(json.dumps(config | parts))  # JSON is YAML
        words = ["run", str(tmp_path / "run.yaml"), "--plain", "--name", "served"]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
        lines = (tmp_path / "served/metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    return run


def test_a_run_learns_from_what_sglang_samples_and_hands_memory_over(run, tiny, tmp_path):
    first, second = run(tiny)
    assert (first["train/version"], second["train/version"]) == (1, 2)
    assert second["loss/mismatch_max"] < 1e-4
    assert "fake SGLang" in next((tmp_path / "served/logs").glob("sglang-*.log")).read_text()


def test_megatron_learns_with_the_experts_that_sglang_chose(run, drawn_model, tmp_path):
    pytest.importorskip("axisrl_megatron", reason="needs axisrl-plugin-megatron")
    pytest.importorskip("megatron.core", reason="needs megatron")
    model = drawn_model("qwen3_moe", "Qwen3MoeForCausalLM", MIXTURE, dtype="float32")
    parts = {
        "engine": {"use": "sglang/engine", "max_context": 128},
        "trainer": {"use": "megatron/trainer", "lr": 1e-2},
        "placement": {"kind": "inline"},
        "rollout": {**RUN["rollout"], "routing": True},
        "rewards": {"main": {"use": "core/length", "coef": 0.1}},
        "verifiers": {},
        "advantage": {"use": "core/reward"},
    }
    first, second = run(model, **parts)
    assert first["loss/router_replay_fraction"] == second["loss/router_replay_fraction"] == 1.0
    assert first["loss/grad_norm"] > 0.1
    # The fake chooses experts that no router would: with others these are above 0.01.
    assert max(first["loss/mismatch_max"], second["loss/mismatch_max"]) < 1e-4
