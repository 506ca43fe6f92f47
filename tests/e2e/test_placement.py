"""inline and ray are the same run: same samples, same metrics, same weights."""

from pathlib import Path

import pytest

NODES = Path(__file__).with_name("nodes.py")
SMOKE = ("gsm8k/grpo-cpu", "--smoke")
SHORT = ("train.updates=3", "eval.every=3", "checkpoint.every=0")


def test_two_engines_give_the_samples_and_weights_of_one(make_run, same_run):
    one = make_run("one", *SHORT)
    one.whole()
    two = make_run("two", *SHORT, "placement.engines=2")
    two.whole()
    same_run(two, one)


@pytest.fixture
def two_machines(monkeypatch, tmp_path):
    """A Ray cluster of two nodes, both on this machine."""
    monkeypatch.setenv("NODES_FILE", str(tmp_path / "nodes"))
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(**node)
    yield cluster
    cluster.shutdown()


def test_engines_on_two_machines_give_the_run_of_one_process_also_when_a_machine_dies(
    make_run, same_run, two_machines, tmp_path
):
    short = ("train.updates=4", "eval=null", "checkpoint.every=1")
    inline = make_run("inline", *short)
    inline.whole()
    there = ("placement.kind=ray", f"placement.address={two_machines.address}", "store=core/ray")
    spread = ("placement.strategy=spread", "placement.engines=2", "rollout.workers=2")
    noted = (*SMOKE, "--plugin", str(NODES))
    run = make_run("both", *short, *there, *spread, "plugins=[nodes]", recipe=noted)
    lived = {}

    def lose_one():
        notes = (tmp_path / "nodes").read_text().splitlines()
        lived.update(note.rsplit(" ", 1) for note in notes)
        (lost,) = [node for node in two_machines.worker_nodes]
        two_machines.remove_node(lost, allow_graceful=False)

    output = run.whole_but(after=2, happens=lose_one)
    same_run(run, inline)
    assert "is replaced" in output or "goes back" in output
    assert {"engine 0", "engine 1", "trainer 0", "rollout 0"} < lived.keys()
    assert lived["engine 0"] != lived["engine 1"]
