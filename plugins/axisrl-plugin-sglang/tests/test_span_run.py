"""A run whose engine is on two machines of a Ray cluster, with the fake SGLang on a CPU."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("ray")
for plugin in ("axisrl_local", "axisrl_gsm8k", "axisrl_grpo"):
    pytest.importorskip(plugin, reason=f"needs {plugin.replace('axisrl_', 'axisrl-plugin-')}")

RUN = {
    "env": {"use": "gsm8k/math", "template": "{question}"},
    "verifiers": {"correct": {"use": "gsm8k/math"}},
    "rewards": {"main": {"use": "core/sum"}},
    "advantage": {"use": "grpo/group"},
    "loss": {"use": "grpo/grpo"},
    "engine": {"use": "sglang/engine", "max_context": 128, "sglang": {"tp_size": 2}},
    "trainer": {"use": "local/trainer", "transport": "disk"},
    "rollout": {"group_size": 2, "max_context": 128, "sampling": {"max_tokens": 8}},
    "train": {"updates": 2, "batch_size": 4, "max_tokens_per_batch": 512},
}
FOLLOWS = {"phase": "rollout", "edge": "during", "delay_s": 0.2, "target": "engine", "rank": 1}
"""Of "engine 0" and "engine-0 1", the part that is not called dies amid rollouts."""


@pytest.fixture
def two_machines(fake_sglang):
    """A Ray cluster of two nodes, both on this machine."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(**node)
    yield cluster.address
    cluster.shutdown()


@pytest.fixture
def run(fake_sglang, tiny, tmp_path, monkeypatch):
    """``run(name, *words, **parts)`` in a process that has no Ray of its own: the run's metrics and
    rollouts, and what it said."""
    monkeypatch.setenv("AXISRL_OUTPUT_DIR", str(tmp_path))
    tasks = [json.dumps({"question": f"{n} + 1 =", "answer": str(n + 1)}) for n in range(8)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(tasks))

    def run(name, *words, **parts):
        config = RUN | {
            "model": {"name": str(tiny.path), "device": "cpu"},
            "dataset": {"use": "core/tasks", "path": str(tmp_path / "tasks.jsonl")},
        }
        (tmp_path / "run.yaml").write_text(json.dumps(config | parts))  # JSON is YAML
        command = [sys.executable, "-m", "axisrl", "run", str(tmp_path / "run.yaml"), "--plain"]
        command += ["--name", name, *words]
        result = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        return told(tmp_path / name), result.stdout + result.stderr

    return run


def told(folder):
    """What a run says of its steps and rollouts, without what the clock decides."""
    timed = ("time", "system/", "recovery/")
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [
        {k: v for k, v in m.items() if not k.startswith(timed) and not k.endswith("_per_s")}
        for m in metrics
    ]
    rows = []
    for path in sorted((folder / "rollouts").glob("*.jsonl")):
        rows += [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        del row["summary"]["seconds"]
    return steps, rows


def test_an_engine_on_two_machines_is_replaced_as_a_whole_and_gives_the_run_of_one_process(
    run, two_machines, tmp_path
):
    alone, _ = run("alone", placement={"kind": "inline"}, store={"use": "core/memory"})
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([{"step": 1, **FOLLOWS}]))
    there = {"kind": "ray", "address": two_machines, "engine_nodes": 2, "cpus_per_actor": 0.1}
    spread, said = run("spread", "--faults", str(plan), placement=there, store={"use": "core/ray"})
    assert json.loads(plan.with_suffix(".jsonl").read_text())["victim"] == "engine-0 1"
    assert "engine 0 is replaced: engine 0 part 1, on " in said
    logs = list((tmp_path / "spread/logs").glob("sglang-*.log"))
    assert len(logs) == 4  # two parts, twice
    assert spread == alone
