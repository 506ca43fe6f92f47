"""Arguments that SGLang does not have are told before anything starts."""

import pytest

from axisrl.config.schema import ModelConfig, RunConfig, Use
from axisrl_sglang.plugin import axisrl_config_resolved

PARTS = {
    "model": ModelConfig(name="tiny"),
    **{name: Use(use=f"x/{name}") for name in ("dataset", "env", "advantage", "loss", "trainer")},
}


def problems(use="sglang/engine", **arguments):
    engine = Use(use=use, options={"sglang": arguments})
    return list(axisrl_config_resolved(RunConfig(engine=engine, **PARTS)))


@pytest.mark.usefixtures("fake_sglang")
def test_every_argument_that_is_wrong_is_told_under_its_key():
    wrong = problems("sglang/engine@1", mem_fraction_sttaic=0.5, tp_size="two", pp_size=1)
    told = {problem.path: problem.message for problem in wrong}
    assert told.keys() == {"engine.sglang.mem_fraction_sttaic", "engine.sglang.tp_size"}
    assert "did you mean mem_fraction_static?" in told["engine.sglang.mem_fraction_sttaic"]


@pytest.mark.usefixtures("fake_sglang")
def test_another_engine_is_none_of_its_business():
    assert problems("x/engine", anything=1) == []


def test_nothing_is_said_where_sglang_is_not_installed(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert problems(mem_fraction_sttaic=0.5) == []
