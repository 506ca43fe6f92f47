"""Combinations that would count the gap twice are refused before a run, with the reason."""

import pytest

from axisrl.config.schema import ModelConfig, RunConfig, Use
from axisrl.plugins.manager import PluginManager
from axisrl_icepop.plugin import axisrl_config_resolved

PARTS = {
    "model": ModelConfig(name="tiny"),
    **{name: Use(use=f"x/{name}") for name in ("dataset", "env", "engine", "trainer", "advantage")},
}


def problems(*corrections, loss="grpo/grpo", **options):
    config = RunConfig(
        corrections=tuple(Use(use=f"icepop/{name}") for name in corrections),
        loss=Use(use=loss, options=options),
        **PARTS,
    )
    return list(axisrl_config_resolved(config))


@pytest.mark.parametrize(
    "corrections",
    [
        (),
        ("icepop",),
        ("token-tis",),
        ("icepop", "token-tis", "veto"),
        ("sequence-mask", "sequence-tis", "k3-filter", "veto", "icepop"),
    ],
)
def test_different_corrections_go_together(corrections):
    assert problems(*corrections, base="old") == []


@pytest.mark.parametrize("name", ["token-tis", "sequence-tis"])
def test_a_weight_with_a_ratio_from_the_rollout_is_refused(name):
    (problem,) = problems("veto", name, base="rollout")
    assert problem.path == "corrections.1"
    assert "the ratio of grpo/grpo is measured from the rollout" in problem.message
    assert problem.fix == "set loss.base=old, or remove it"


@pytest.mark.parametrize("name", ["icepop", "sequence-mask", "veto", "k3-filter"])
def test_leaving_out_is_no_weight_and_goes_with_a_ratio_from_the_rollout(name):
    assert problems(name, base="rollout") == []


def test_the_same_correction_twice_is_refused_whatever_its_options():
    (problem,) = problems("icepop", "veto", "icepop")
    assert problem.path == "corrections.2"
    assert "icepop/icepop is listed already, as corrections.0" in problem.message


def test_a_version_does_not_make_it_another_correction():
    (problem,) = problems("icepop", "icepop@1")
    assert problem.path == "corrections.1"


def test_a_correction_of_another_plugin_is_that_plugins_affair():
    config = RunConfig(
        corrections=(Use(use="own/icepop"), Use(use="own/icepop"), Use(use="own/token-tis")),
        loss=Use(use="grpo/grpo", options={"base": "rollout"}),
        **PARTS,
    )
    assert list(axisrl_config_resolved(config)) == []


@pytest.mark.parametrize("order", [("token-tis", "sequence-tis"), ("sequence-tis", "token-tis")])
def test_both_importance_weights_together_are_refused_at_the_second(order):
    (problem,) = problems(*order)
    assert problem.path == "corrections.1"
    assert "apply it twice" in problem.message


def test_everything_wrong_is_said_at_once():
    found = problems("token-tis", "sequence-tis", "token-tis", base="rollout")
    assert sorted(problem.path for problem in found) == [
        "corrections.0",
        "corrections.1",
        "corrections.1",
        "corrections.2",
        "corrections.2",
    ]


def test_the_manager_asks_the_plugin_once_it_is_active():
    manager = PluginManager.discover()
    manager.activate(["icepop"])
    config = RunConfig(
        corrections=(Use(use="icepop/token-tis"),) * 2, loss=Use(use="grpo/grpo"), **PARTS
    )
    assert [problem.path for problem in manager.config_resolved(config)] == ["corrections.1"]


@pytest.mark.parametrize("name", ["token-tis", "sequence-tis"])
def test_with_a_loss_that_always_starts_at_the_rollout_a_weight_is_refused_once(name):
    pytest.importorskip("axisrl_grpo", reason="grpo/kimi2-5 is axisrl-plugin-grpo's")
    manager = PluginManager.discover()
    manager.activate(["grpo", "icepop"])
    config = RunConfig(
        corrections=(Use(use="icepop/veto"), Use(use=f"icepop/{name}")),
        loss=Use(use="grpo/kimi2-5"),
        **PARTS,
    )
    assert [problem.path for problem in manager.config_resolved(config)] == ["corrections.1"]
