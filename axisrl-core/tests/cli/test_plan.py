"""The processes of a run, as a dry run counts them."""

from types import SimpleNamespace

from axisrl.cli.plan import _actors, _not_here
from axisrl.config.schema import RunConfig
from axisrl.config.validate import validate
from axisrl.plugins import EngineComponent

ANY = dict.fromkeys(("dataset", "env", "advantage", "loss", "engine", "trainer"), "a/b")
PLACE = {"kind": "ray", "engines": 2, "trainer_ranks": 3, "gpus_engine": 0.5, "gpus_trainer": 0.25}


def actors(**placement):
    keys = {"model": "m", **ANY, "value": {"loss": "a/v"}, "placement": {**PLACE, **placement}}
    return {name: rest for name, *rest in _actors(validate(RunConfig, keys))}


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
