"""Engines and trainers that take turns with memory make the run of those that keep it: the same
samples, metrics and weights, in one process, on Ray, after a kill, and on a GPU."""

import json
from pathlib import Path

import pytest

GPUS = Path(__file__).with_name("gpus.py")
SMOKE = ("gsm8k/grpo-cpu", "--smoke")
SHORT = ("train.updates=4", "train.updates_per_sync=2", "eval.every=2", "checkpoint.every=2")
MODELS = (
    "advantage={use: ppo/gae, gamma: 0.99, lam: 0.9}",
    "loss=ppo/ppo",
    "value={loss: ppo/value, trainer: {use: local/trainer, lr: 0.005}}",
    "kl={coef: 0.05, reset_every: 2}",
)
COLOCATE = "placement.colocate=true"


def test_a_colocated_run_with_value_model_and_reference_is_the_plain_run(make_run, same_run):
    plain = make_run("plain", *SHORT, *MODELS)
    plain.whole()
    colocated = make_run("colocated", *SHORT, *MODELS, COLOCATE)
    colocated.whole()
    same_run(colocated, plain)
    assert min(colocated.series("time/handover_s")) > 0
    assert not plain.series("time/handover_s")


def test_a_colocated_run_goes_on_after_a_kill(make_run, same_run):
    settings = ("train.updates=3", "checkpoint.every=1", "eval=null", COLOCATE, *MODELS[:3])
    whole, killed = make_run("whole", *settings), make_run("killed", *settings)
    whole.whole()
    killed.kill_after(2)
    killed.resume()
    same_run(killed, whole)


@pytest.fixture
def two_gpus(monkeypatch, tmp_path):
    """Address of a Ray cluster that believes in two GPUs."""
    monkeypatch.setenv("GPUS_FILE", str(tmp_path / "gpus"))
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "num_gpus": 2, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    yield cluster.address
    cluster.shutdown()


def test_two_engines_a_trainer_a_value_model_and_a_reference_share_two_gpus(
    make_run, same_run, two_gpus, tmp_path
):
    short = ("train.updates=2", "eval.every=2", "checkpoint.every=0", *MODELS)
    plain = make_run("plain", *short)
    plain.whole()
    there = ("placement.kind=ray", f"placement.address={two_gpus}", "placement.engines=2", COLOCATE)
    shares = ("placement.gpus_engine=0.5", "placement.gpus_trainer=0.2")
    cpu = ("model.device=cpu", "placement.cpus_per_actor=0.2", "plugins=[gpus]")
    recipe = (*SMOKE, "--plugin", str(GPUS))
    shared = make_run("shared", *short, *there, *shares, *cpu, recipe=recipe)
    shared.whole()
    same_run(shared, plain)
    lines = (tmp_path / "gpus").read_text().splitlines()
    lives = dict(line.rsplit(" ", 1) for line in lines)
    assert lives["trainer 0"] == lives["engine 0"] == lives["reference 0"]
    assert lives["value 0"] == lives["engine 1"]
    assert {lives["engine 0"], lives["engine 1"]} == {"0", "1"}
    assert lives["rollout 0"] == lives["recorder 0"] == "none"


def test_an_engine_that_dies_in_its_turn_is_replaced_and_in_another_costs_the_step(
    make_run, same_run, tmp_path
):
    pytest.importorskip("ray")
    short = ("train.updates=3", "eval=null", "checkpoint.every=1", *MODELS[:3])
    plain = make_run("plain", *short)
    plain.whole()
    plan = tmp_path / "plan.json"
    fault = {"edge": "before", "target": "engine"}
    times = ({"step": 2, "phase": "rollout"}, {"step": 3, "phase": "train"})
    plan.write_text(json.dumps([fault | time for time in times]))
    recipe = (*SMOKE, "--faults", str(plan))
    killed = make_run("killed", *short, "placement=ray", COLOCATE, recipe=recipe)
    output = killed.whole()
    assert "engine 0 is replaced" in output
    assert "the run goes back to step-000002: engine rank 0 is gone, and the GPUs" in output
    same_run(killed, plain)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_on_a_gpu_a_colocated_run_is_the_plain_run_bit_for_bit(make_run, same_run, dtype):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    there = ("model.device=cuda", f"model.dtype={dtype}", *SHORT, *MODELS)
    plain = make_run("plain", *there)
    plain.whole()
    colocated = make_run("colocated", *there, COLOCATE)
    colocated.whole()
    same_run(colocated, plain)
