"""The recipes keep the settings they promise, and the smoke run of either algorithm learns."""

import json
from statistics import mean

import pytest

pytest.importorskip("axisrl_local", reason="the recipes need axisrl-plugin-local")
pytest.importorskip("axisrl_grpo", reason="the recipes need axisrl-plugin-grpo")
pytest.importorskip("axisrl_ppo", reason="the recipes need axisrl-plugin-ppo")

from axisrl.config.load import RunRequest, load_run
from axisrl.config.recipe import read_recipe
from axisrl.errors import PluginError
from axisrl.plugins.manager import PluginManager
from axisrl.runtime.driver import RunOptions, run

RECIPES = [
    f"gsm8k/{algorithm}{kind}" for algorithm in ("grpo", "ppo") for kind in ("", "-1gpu", "-cpu")
]
LOCAL_PAIR = ("engine=local/engine", "trainer=local/trainer")
PAIRS = [("gsm8k/ppo", "gsm8k/grpo"), ("gsm8k/ppo-cpu", "gsm8k/grpo-cpu")]


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


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        ("gsm8k/grpo", LOCAL_PAIR),
        ("gsm8k/ppo", (*LOCAL_PAIR, "value.trainer=local/trainer")),
    ],
)
def test_the_gpu_recipes_are_valid_with_the_local_pair(recipe, overrides):
    loaded, _ = load(recipe, *overrides)
    assert loaded.config.groups_per_window == 256


@pytest.mark.parametrize(("ppo", "grpo"), PAIRS)
def test_ppo_differs_from_grpo_in_advantage_loss_value_model_and_where_they_are(ppo, grpo):
    manager = PluginManager.discover()
    *below, own = read_recipe(ppo, manager).layers
    assert below == list(read_recipe(grpo, manager).layers)
    assert set(own.tree) - {"placement"} == {"advantage", "loss", "value"}
    value = own.tree["value"]
    assert (own.tree["advantage"]["use"], own.tree["loss"]["use"]) == ("ppo/gae", "ppo/ppo")
    assert value["loss"] == {"use": "ppo/value", "clip": 0.2}
    assert set(value) == {"loss", "trainer"}
    assert value["trainer"]["use"] == below[-1].tree["trainer"]["use"]


def test_ppo_runs_with_gamma_1_lambda_1_clip_02_and_no_dual_clip():
    config = load("gsm8k/ppo-cpu")[0].config
    assert (config.advantage.options["gamma"], config.advantage.options["lam"]) == (1.0, 1.0)
    loss = config.loss.options
    assert (loss["clip_low"], loss["clip_high"], loss["dual_clip"]) == (0.2, 0.2, None)
    assert config.value.loss.options["clip"] == 0.2


@pytest.mark.parametrize(("ppo", "grpo"), PAIRS)
def test_the_smoke_settings_of_ppo_are_those_of_grpo_and_a_trainer_of_the_value_model(ppo, grpo):
    manager = PluginManager.discover()
    *below, own = read_recipe(ppo, manager).smoke
    assert below == list(read_recipe(grpo, manager).smoke)
    trainer = below[-1].tree["trainer"]
    assert own.tree == {"value": {"trainer": trainer}}


def test_the_cpu_recipe_evaluates_on_tasks_it_never_trains_on():
    config = load("gsm8k/grpo-cpu")[0].config
    splits = (config.dataset.options["split"], config.eval.dataset.options["split"])
    assert splits == ("train", "held_out")
    assert config.eval.at_start


@pytest.mark.parametrize("recipe", ["gsm8k/grpo", "gsm8k/ppo"])
def test_the_gpu_recipes_are_for_eight_gpus(recipe):
    pytest.importorskip("axisrl_sglang", reason="needs axisrl-plugin-sglang")
    pytest.importorskip("axisrl_megatron", reason="needs axisrl-plugin-megatron")
    config = load(recipe)[0].config
    where = config.placement
    ranks = where.trainer_ranks * (1 + (config.value is not None))
    assert where.engines * where.gpus_engine + ranks * where.gpus_trainer == 8


@pytest.mark.parametrize("recipe", ["gsm8k/grpo-1gpu", "gsm8k/ppo-1gpu"])
def test_the_one_gpu_recipes_take_turns_in_one_process(recipe):
    pytest.importorskip("axisrl_sglang", reason="needs axisrl-plugin-sglang")
    pytest.importorskip("axisrl_megatron", reason="needs axisrl-plugin-megatron")
    config = load(recipe)[0].config
    assert (config.placement.kind, config.placement.colocate) == ("inline", True)
    assert config.engine.options["hand_over"]
    assert config.trainer.options["transport"] == "cuda_ipc"


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_smoke_settings_are_the_same_run_for_every_recipe(recipe):
    config = load(recipe, smoke=True)[0].config
    assert config.model.name == "tiny"
    assert (config.engine.use, config.trainer.use) == ("local/engine", "local/trainer")
    assert config.train.updates <= 30


@pytest.mark.parametrize("recipe", ["gsm8k/grpo-cpu", "gsm8k/ppo-cpu"])
def test_the_smoke_run_raises_its_reward(tmp_path, recipe):
    loaded, manager = load(recipe, smoke=True)
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
