"""Runs with every model beside the policy: value model, reference, teacher. They score the same
wherever they live."""

import pytest

MODELS = (
    "advantage={use: ppo/gae, lam: 0.9}",
    "loss=ppo/ppo",
    "value={loss: ppo/value, trainer: {use: local/trainer, lr: 0.005}}",
    "kl={coef: 0.05, reset_every: 1}",
)
SHORT = ("train.updates=2", "eval=null", "checkpoint.every=0")


@pytest.fixture
def teacher(make_run):
    """Folder of a tiny model that is not the one a run starts from."""
    run = make_run("teacher", "train.updates=2", "eval=null", "seed=7")
    run.whole()
    return run.checkpoint / "trainer" / "model"


def test_ray_gives_the_same_run_as_inline_with_four_models(make_run, same_run, teacher):
    pytest.importorskip("ray")
    settings = (*SHORT, *MODELS, f"teacher={{model: {teacher}, alpha: 0.3}}")
    inline = make_run("inline", *settings)
    inline.whole()
    ray = make_run("ray", *settings, "placement=ray")
    ray.whole()
    same_run(ray, inline)
    assert ray.models() == {"trainer", "value", "reference"}
    assert ray.series("loss/kl") and ray.series("value/total")


def advantages(run):
    rows = run.rollouts()["step-000001.jsonl"]
    return {row["summary"]["id"]: row["advantage"] for row in rows}


def test_a_teacher_behind_an_engine_gives_the_advantages_of_the_frozen_one(make_run, teacher):
    cooler = (*SHORT, "rollout.sampling.temperature=0.7")
    frozen = make_run("frozen", *cooler, f"teacher={{model: {teacher}}}")
    frozen.whole()
    served = make_run("served", *cooler, f"teacher={{model: {teacher}, engine: local/engine}}")
    served.whole()
    assert len(set(advantages(frozen).values())) > 16
    assert advantages(served) == pytest.approx(advantages(frozen), abs=1e-5)
