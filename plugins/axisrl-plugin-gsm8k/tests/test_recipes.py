"""The recipes keep the settings they promise, and the smoke run of either one learns."""

import json
from statistics import mean

import pytest

pytest.importorskip("axisrl_local", reason="the recipes need axisrl-plugin-local")
pytest.importorskip("axisrl_grpo", reason="the recipes need axisrl-plugin-grpo")

from axisrl.config.load import RunRequest, load_run
from axisrl.config.recipe import read_recipe
from axisrl.errors import PluginError
from axisrl.plugins.manager import PluginManager
from axisrl.runtime.driver import RunOptions, run

RECIPES = ["gsm8k/grpo", "gsm8k/grpo-cpu"]


def load(recipe, *overrides, smoke=False):
    manager = PluginManager.discover()
    request = RunRequest(recipe=recipe, overrides=overrides, smoke=smoke)
    return load_run(request, manager), manager


def test_the_gpu_recipe_loads_up_to_the_plugins_that_are_not_installed():
    installed = {record.name for record in PluginManager.discover().records()}
    if {"sglang", "megatron"} <= installed:
        pytest.skip("axisrl-plugin-sglang and axisrl-plugin-megatron are installed")
    with pytest.raises(PluginError, match=r"axisrl-plugin-(sglang|megatron)"):
        load("gsm8k/grpo")


def test_the_gpu_recipe_has_the_published_settings():
    tree = read_recipe("gsm8k/grpo", PluginManager.discover()).layers[-1].tree
    assert tree["model"]["name"] == "Qwen/Qwen2.5-1.5B-Instruct"
    assert tree["loss"] == {
        "use": "grpo/grpo",
        "clip_low": 0.2,
        "clip_high": 0.2,
        "dual_clip": 3.0,
    }
    train = tree["train"]
    assert (train["updates"], train["batch_size"], train["updates_per_sync"]) == (600, 512, 4)
    assert tree["rollout"]["group_size"] == 8


@pytest.mark.parametrize("overrides", [("engine=local/engine", "trainer=local/trainer")])
def test_the_gpu_recipe_is_valid_with_the_local_pair(overrides):
    loaded, _ = load("gsm8k/grpo", *overrides)
    assert loaded.config.groups_per_window == 256


def test_the_cpu_recipe_evaluates_on_tasks_it_never_trains_on():
    config = load("gsm8k/grpo-cpu")[0].config
    splits = (config.dataset.options["split"], config.eval.dataset.options["split"])
    assert splits == ("train", "held_out")
    assert config.eval.at_start


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_smoke_settings_are_the_same_run_for_either_recipe(recipe):
    config = load(recipe, smoke=True)[0].config
    assert config.model.name == "tiny"
    assert (config.engine.use, config.trainer.use) == ("local/engine", "local/trainer")
    assert config.train.updates <= 30


def test_the_smoke_run_raises_its_reward(tmp_path):
    loaded, manager = load("gsm8k/grpo-cpu", smoke=True)
    options = RunOptions(
        run_dir=tmp_path / "run",
        resume=False,
        plain=True,
        show_samples=None,
        command=("axisrl", "run"),
        allow_drift=False,
        cache_dir=tmp_path / "cache",
    )
    run(loaded, manager, options)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rewards = [row["reward/mean"] for row in map(json.loads, lines) if "reward/mean" in row]
    assert len(rewards) == loaded.config.train.updates
    assert mean(rewards[-5:]) > mean(rewards[:2]) + 0.2
