"""Presets hold keys of a run that exist, options that their components take, and nothing else."""

import importlib.resources

import pytest
import yaml

from axisrl.config.schema import RunConfig
from axisrl.config.shape import expand, prepare
from axisrl.config.validate import validate
from axisrl.plugins.manager import PluginManager
from axisrl_grpo.plugin import axisrl_recipes

PRESETS = {preset.name: preset for preset in axisrl_recipes()}
FIXED_LENGTH = 1024


def tree_of(name):
    package, _, path = PRESETS[name].target.partition(":")
    text = importlib.resources.files(package).joinpath(path).read_text(encoding="utf-8")
    return expand(RunConfig, yaml.safe_load(text))


@pytest.fixture(scope="module")
def manager():
    found = PluginManager.discover()
    found.activate(["grpo"])
    return found


@pytest.fixture(scope="module")
def built(manager):
    def config_of(kind, use):
        options = {key: value for key, value in use.items() if key != "use"}
        cls = manager.config_class(manager.find(kind, use["use"]))
        return validate(cls, options)

    return config_of


def test_the_presets_are_those_of_the_readme():
    assert list(PRESETS) == ["dr-grpo", "dapo", "rloo", "gspo", "cispo"]
    assert all(preset.preset for preset in PRESETS.values())


@pytest.mark.parametrize("name", PRESETS)
def test_every_key_is_one_of_a_run_s_configuration(name):
    tree = tree_of(name)
    assert prepare(RunConfig, tree)[1] == []
    assert set(tree) <= {"advantage", "loss", "train", "rewards", "kl"}


@pytest.mark.parametrize("name", PRESETS)
def test_every_component_takes_the_options_it_is_given(name, built):
    tree = tree_of(name)
    built("advantage", tree["advantage"])
    built("loss", tree["loss"])
    for reward in tree.get("rewards", {}).values():
        built("reward", reward)


@pytest.mark.parametrize("name", PRESETS)
def test_options_of_a_recipe_with_the_same_loss_do_not_shine_through(name, built):
    loss = tree_of(name)["loss"]
    left = {"dual_clip": 3.0} if loss["use"] == "grpo/grpo" else {}
    recipe = {"aggregation": "sequence_mean_token_sum_norm", "sequence_norm": 7, **left}
    assert built("loss", {**recipe, **loss}) == built("loss", loss)


def test_dr_grpo_has_no_standard_deviation_and_a_fixed_length(built):
    tree = tree_of("dr-grpo")
    loss = built("loss", tree["loss"])
    assert tree["advantage"]["use"] == "grpo/dr-grpo"
    assert (loss.aggregation, loss.sequence_norm) == ("sequence_mean_token_sum_norm", FIXED_LENGTH)


def test_dapo_clips_higher_shapes_long_answers_and_refills_groups_without_variance(built):
    tree = tree_of("dapo")
    loss = built("loss", tree["loss"])
    assert (loss.clip_low, loss.clip_high, loss.aggregation) == (0.2, 0.28, "token_mean")
    assert tree["train"] == {"zero_std_groups": "drop"}
    assert tree["kl"]["coef"] == 0.0
    overlong = built("reward", tree["rewards"]["overlong"])
    assert (overlong.max_tokens, overlong.penalty) == (FIXED_LENGTH, 1.0)
    assert 0 < overlong.cache_tokens < overlong.max_tokens


def test_rloo_gspo_and_cispo_use_the_components_of_their_names():
    uses = {
        name: (tree_of(name)["advantage"]["use"], tree_of(name)["loss"]["use"]) for name in PRESETS
    }
    assert uses["rloo"] == ("grpo/rloo", "grpo/reinforce")
    assert uses["gspo"] == ("grpo/group", "grpo/gspo")
    assert uses["cispo"] == ("grpo/group", "grpo/cispo")
