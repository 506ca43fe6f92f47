"""The processes of a run, as a dry run counts them."""

from types import SimpleNamespace

import pytest

from axisrl.cli.plan import _actors, _gpus, _not_here
from axisrl.config.schema import RunConfig
from axisrl.config.validate import validate
from axisrl.plugins import EngineComponent

ANY = dict.fromkeys(("dataset", "env", "advantage", "loss", "engine", "trainer"), "a/b")
PLACE = {"kind": "ray", "engines": 2, "trainer_ranks": 3, "gpus_engine": 0.5, "gpus_trainer": 0.25}


def run(placement, **keys):
    keys = {"model": "m", **ANY, "value": {"loss": "a/v"}, **keys}
    return validate(RunConfig, {**keys, "placement": {**PLACE, **placement}})


def actors(**placement):
    return {name: rest for name, *rest in _actors(run(placement))}


def test_every_rank_of_policy_and_value_model_and_every_engine_is_counted():
    found = actors()
    assert found["trainer"] == found["value model"] == ["3", "0.25", "0.25", "a local Ray"]
    assert found["engine"] == ["2", "0.25", "0.5", "a local Ray"]


def test_those_who_share_gpus_are_told_from_those_who_do_not():
    found = actors(colocate=True)
    told = {name: rest[-1] for name, rest in found.items()}
    shared = "a local Ray, GPUs in turns"
    assert told["engine"] == told["trainer"] == told["value model"] == shared
    assert told["rollout workers"] == "a local Ray"


def test_what_is_not_installed_here_is_told_with_what_installs_it():
    component = EngineComponent(name="e", target="m:E", extras=("gpu",), modules=("nowhere",))
    used = SimpleNamespace(
        path="engine", id="x/e", resolved=SimpleNamespace(component=component, plugin="x")
    )
    (line,) = _not_here([used], {"x": SimpleNamespace(distribution="axisrl-plugin-x")})
    assert line.startswith("not checked: options of engine that only nowhere knows")
    assert line.endswith("(pip install 'axisrl-plugin-x[gpu]')")


def test_the_reference_has_a_process_and_a_gpu_of_its_own():
    plain, with_kl = run({}), run({}, kl={"coef": 0.1})
    assert ("reference", "1", "0.25", "0.25", "a local Ray") in _actors(with_kl)
    assert "reference" not in {name for name, *_ in _actors(plain)}
    assert _gpus(with_kl) == _gpus(plain) + 0.25


@pytest.mark.parametrize(
    ("placement", "gpus"),
    [
        ({}, 2 * 0.5 + 6 * 0.25),
        ({"engines": 4, "trainer_ranks": 2, "gpus_engine": 1, "gpus_trainer": 1}, 8),
        ({"engine_nodes": 2, "gpus_engine": 8, "gpus_trainer": 1}, 2 * 2 * 8 + 6),
        ({"colocate": True}, 3),
        ({"colocate": True, "gpus_engine": 0, "gpus_trainer": 0}, 0),
    ],
)
def test_the_gpus_of_all_processes_are_added_up_and_shared_ones_counted_once(placement, gpus):
    assert _gpus(run(placement)) == gpus
