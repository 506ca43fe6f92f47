from __future__ import annotations

import pytest

from axisrl.config.load import stored_tree
from axisrl.config.render import render
from axisrl.config.shape import leaves, plain
from axisrl.errors import ConfigError, PluginError, UsageError


def message_of(load, *args: object, **request: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*args, **request)
    return caught.value.message


def test_layers_lie_in_their_order(load, tmp_path):
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("train: {updates: 20, updates_per_sync: 2}\ncheckpoint: {every: 7, keep: 9}\n")
    two.write_text("checkpoint: {every: 8}\n")
    loaded = load("toy/small", "checkpoint.keep=3", configs=(str(one), str(two)), smoke=True)
    assert loaded.config.rollout.group_size == 4
    assert loaded.config.train.batch_size == 4
    assert loaded.config.train.updates == 20
    assert loaded.config.checkpoint.every == 8
    assert loaded.config.checkpoint.keep == 3
    kept = {key: loaded.origins[key] for key in ("train.updates", "checkpoint.every")}
    assert kept == {"train.updates": str(one), "checkpoint.every": str(two)}
    assert loaded.origins["checkpoint.keep"] == "command line"
    assert loaded.origins["train.batch_size"] == "recipe toy/small"
    assert loaded.origins["rollout.group_size"] == "recipe toy/base"
    assert loaded.origins["rollout.max_turns"] == "default"


def test_smoke_lies_over_the_recipe_and_below_the_command_line(load):
    assert load(smoke=True).config.train.updates == 2
    assert load(smoke=True).origins["train.updates"] == "smoke settings of toy/base"
    assert load("toy/base", "train.updates=4", smoke=True).config.train.updates == 4


def test_the_tree_is_the_config_with_every_default(load):
    loaded = load()
    assert loaded.tree == plain(loaded.config)
    assert loaded.tree["env"] == {"use": "toy/world", "size": 5, "shape": "flat"}
    assert loaded.config.env.options == {"size": 5, "shape": "flat"}
    assert set(loaded.origins) == set(leaves(loaded.tree))
    assert loaded.origins["env.shape"] == "default of toy/world"


def test_a_rendered_config_loads_to_the_same_config(load, tmp_path):
    loaded = load("toy/small", "loggers=[core/jsonl]", "eval={dataset: toy/tasks, tasks: 3}")
    (tmp_path / "config.yaml").write_text(render(loaded.tree, loaded.origins))
    again = load(tmp_path / "config.yaml")
    assert again.tree == loaded.tree
    assert again.config == loaded.config
    assert stored_tree(tmp_path) == loaded.tree


def test_components_are_listed_with_what_was_found(load):
    found = {used.path: used.resolved.id for used in load().components}
    assert found["env"] == "toy/world"
    assert found["verifiers.exact"] == "toy/exact"
    assert found["loggers.0"] == "core/console"


def test_an_argument_reaches_into_a_component_and_may_replace_it(load):
    loaded = load("toy/base", "engine.max_batch=3", "env=toy/void", "--loss.clip=1e-3")
    assert loaded.tree["engine"] == {"use": "toy/engine", "max_batch": 3}
    assert loaded.tree["env"] == {"use": "toy/void"}
    assert loaded.tree["loss"]["clip"] == 1e-3


def test_options_left_behind_with_their_component_are_told_where_the_next_knows_them(load, sphere):
    assert load("toy/base", "env=round/sphere").notes == (
        "env.size is 3, the default of round/sphere: 5 (recipe toy/base) was set for toy/world",
    )
    assert load("toy/base", "env={use: round/sphere, size: 4}").notes == ()
    assert load("toy/base", "env.size=3", "env=round/sphere").notes == ()
    assert load("toy/base", "env=toy/void").notes == ()


def test_a_verifier_is_added_and_taken_out_by_its_name(load):
    loaded = load("toy/base", "verifiers.second.use=toy/exact", "verifiers.exact=null")
    assert loaded.tree["verifiers"] == {"second": {"use": "toy/exact"}}
    assert "verifiers.exact" not in loaded.origins


def test_a_logger_is_added_once_and_by_its_short_name(load):
    loaded = load(loggers=("wandb", "jsonl", "core/wandb"))
    names = [logger["use"] for logger in loaded.tree["loggers"]]
    assert names == ["core/console", "core/jsonl", "core/wandb"]
    assert loaded.origins["loggers"] == "--logger"


def test_an_unknown_key_names_the_nearest_and_where_it_came_from(load, tmp_path):
    """Pitfall 26: a misspelt key is an error, not a silent default."""
    assert message_of(load, "toy/base", "engine.max_bach=3") == (
        "unknown key engine.max_bach; did you mean max_batch? (from command line)"
    )
    (tmp_path / "a.yaml").write_text("trian: {updates: 3}\n")
    assert message_of(load, configs=(str(tmp_path / "a.yaml"),)) == (
        f"unknown key trian; did you mean train? (from {tmp_path / 'a.yaml'})"
    )


def test_a_group_of_one_says_what_is_wrong_with_it(load):
    assert message_of(load, "toy/base", "rollout.group_size=1").startswith(
        "rollout.group_size 1 leaves toy/group nothing to compare with"
    )


def test_a_group_of_one_needs_no_second_setting_where_it_is_right(load):
    loaded = load("toy/base", "rollout.group_size=1", "advantage=toy/alone")
    assert loaded.config.rollout.min_group_size == 1
    assert loaded.origins["rollout.min_group_size"] == "rollout.group_size"


def test_sizes_that_do_not_divide_say_where_both_were_set(load):
    with pytest.raises(ConfigError) as caught:
        load("toy/base", "rollout.group_size=3")
    assert "train.batch_size 8 is not a multiple of rollout.group_size 3" in caught.value.message
    assert "rollout.group_size (from command line)" in caught.value.fix
    assert "train.batch_size (from recipe toy/base)" in caught.value.fix


def test_a_senseless_size_says_where_it_was_set(load):
    with pytest.raises(ConfigError) as caught:
        load("toy/base", "rollout.group_size=0")
    assert caught.value.message == "rollout: group_size 0 is below 1"
    assert caught.value.fix == "change rollout.group_size (from command line)"


def test_what_a_plugin_finds_wrong_is_a_config_error(load):
    with pytest.raises(ConfigError) as caught:
        load("toy/base", "seed=13")
    assert caught.value.message == "seed: 13 is unlucky (from command line)"
    assert caught.value.fix == "seed=14"


def test_smoke_without_smoke_settings_is_a_usage_error(load, tmp_path):
    (tmp_path / "a.yaml").write_text("seed: 1\n")
    with pytest.raises(UsageError, match="has no smoke settings"):
        load(tmp_path / "a.yaml", smoke=True)


def test_a_file_of_settings_does_not_stand_on_a_recipe(load, tmp_path):
    (tmp_path / "a.yaml").write_text("extends: toy/base\n")
    assert "toy/base is a whole recipe" in message_of(load, configs=(str(tmp_path / "a.yaml"),))


def test_presets_and_files_lie_over_the_recipe_from_left_to_right(load, tmp_path):
    one = tmp_path / "one.yaml"
    one.write_text("loss: {clip: 0.2}\ncheckpoint: {every: 8, keep: 3}\n")
    loaded = load("toy/base", "checkpoint.keep=4", configs=("toy/wide", str(one), "toy/rare"))
    settings = ("rollout.group_size", "loss.clip", "checkpoint.every", "checkpoint.keep")
    assert {key: loaded.origins[key] for key in settings} == {
        "rollout.group_size": "preset toy/wide",
        "loss.clip": "preset toy/rare",
        "checkpoint.every": "preset toy/rare",
        "checkpoint.keep": "command line",
    }
    assert loaded.tree["loss"] == {"use": "toy/clip", "clip": 0.3}
    assert load("toy/base", configs=("toy/rare", str(one))).tree["loss"]["clip"] == 0.2
    assert loaded.recipe == "toy/base"


def test_smoke_settings_lie_over_presets_of_the_recipe_and_below_those_of_the_command_line(
    load, tmp_path
):
    path = tmp_path / "a.yaml"
    path.write_text("extends: [toy/base, mine.yaml]\n")
    (tmp_path / "mine.yaml").write_text("train: {updates: 7}\n")
    assert load(path).config.train.updates == 7
    assert load(path, smoke=True).config.train.updates == 2
    again = load(path, smoke=True, configs=(str(tmp_path / "mine.yaml"),))
    assert again.config.train.updates == 7


def test_comments_and_errors_name_the_preset(load, tmp_path):
    loaded = load("toy/base", configs=("toy/wide",))
    assert "  group_size: 8  # preset toy/wide\n" in render(loaded.tree, loaded.origins)
    with pytest.raises(ConfigError) as caught:
        load("toy/small", configs=("toy/wide",))
    assert "rollout.group_size (from preset toy/wide)" in caught.value.fix


def test_an_unknown_plugin_in_the_list_is_a_plugin_error(load):
    with pytest.raises(PluginError, match="'auditt' is not installed"):
        load("toy/base", "plugins=[auditt]")


def test_words_of_yaml_1_1_stay_words(load):
    assert load("toy/base", "name=off").config.name == "off"


def test_a_plugin_that_gave_nothing_but_settings_stays_with_the_run(load, site, tmp_path):
    """A run that is resumed from its config.yaml has the plugins it was started with."""
    source = """
        from axisrl.plugins import RecipeComponent, hookimpl

        @hookimpl
        def axisrl_recipes():
            return [RecipeComponent(name="slow", target="{module}:slow.yaml", preset=True)]
    """
    site.add("tuned", source, files={"slow.yaml": "seed: 3\n"})
    loaded = load("toy/base", configs=("tuned/slow",))
    assert loaded.config.plugins == ("tuned",)
    assert loaded.origins["plugins"] == "preset tuned/slow"
    (tmp_path / "config.yaml").write_text(render(loaded.tree, loaded.origins))
    assert load(tmp_path / "config.yaml").tree == loaded.tree
    assert load("toy/base").config.plugins == ()
