from __future__ import annotations

import pytest

from axisrl.config.overrides import Layers, differences, origin_of, parse_override
from axisrl.errors import ConfigError, UsageError


def layered(*layers: tuple[dict, str]) -> Layers:
    out = Layers()
    for tree, origin in layers:
        out.add(tree, origin)
    return out


def test_an_override_nests_and_parses_its_value():
    assert parse_override("train.lr=1e-6") == {"train": {"lr": 1e-6}}


def test_leading_dashes_are_the_same_override():
    assert parse_override("--a.b=[1, 2]") == parse_override("a.b=[1, 2]")


def test_an_empty_value_is_null_and_a_value_may_hold_equals_signs():
    assert parse_override("eval=") == {"eval": None}
    assert parse_override("a=x=y") == {"a": "x=y"}


def test_a_verifier_name_with_a_dash_stays_as_it_is():
    assert parse_override("--verifiers.my-own.use=a/b") == {"verifiers": {"my-own": {"use": "a/b"}}}


@pytest.mark.parametrize("argument", ["train.lr", "=3", "a..b=1", ".a=1", "a .b=1"])
def test_what_is_no_setting_is_a_usage_error(argument):
    with pytest.raises(UsageError, match="cannot read"):
        parse_override(argument)


def test_a_value_that_is_no_yaml_names_the_key():
    with pytest.raises(ConfigError, match=r"the value of a\.b"):
        parse_override("a.b={x")


def test_mappings_merge_and_every_leaf_keeps_its_origin():
    layers = layered(({"a": {"x": 1, "y": 2}}, "recipe"), ({"a": {"y": 3}}, "command line"))
    assert layers.tree == {"a": {"x": 1, "y": 3}}
    assert layers.origins == {"a.x": "recipe", "a.y": "command line"}


def test_lists_are_replaced_whole():
    layers = layered(({"a": [1, 2]}, "recipe"), ({"a": [3]}, "file"))
    assert layers.tree == {"a": [3]}
    assert layers.origins == {"a": "file"}


def test_another_component_drops_the_options_of_lower_layers():
    layers = layered(
        ({"env": {"use": "a/x", "size": 1, "deep": {"k": 1}}}, "recipe"),
        ({"env": {"use": "b/y", "rate": 2}}, "file"),
    )
    assert layers.tree == {"env": {"use": "b/y", "rate": 2}}
    assert layers.origins == {"env.use": "file", "env.rate": "file"}


def test_the_same_component_keeps_the_options_of_lower_layers():
    layers = layered(({"env": {"use": "a/x", "size": 1}}, "recipe"), ({"env": {"use": "a/x"}}, "f"))
    assert layers.tree == {"env": {"use": "a/x", "size": 1}}


def test_options_given_before_use_on_one_command_line_survive():
    layers = layered(
        ({"env": {"use": "a/x", "size": 1}}, "recipe"),
        ({"env": {"use": "b/y"}}, "command line"),
        ({"env": {"size": 3}}, "command line"),
    )
    assert layers.tree == {"env": {"use": "b/y", "size": 3}}


def test_null_replaces_a_section_and_a_section_replaces_null():
    layers = layered(({"eval": {"every": 1}}, "recipe"), ({"eval": None}, "file"))
    assert layers.tree == {"eval": None}
    assert layers.origins == {"eval": "file"}
    layers.add({"eval": {"every": 2}}, "command line")
    assert layers.tree == {"eval": {"every": 2}}
    assert layers.origins == {"eval.every": "command line"}


def test_an_empty_mapping_changes_nothing_that_is_there():
    layers = layered(({"env": {"x": 1}}, "recipe"), ({"env": {}}, "file"))
    assert layers.tree == {"env": {"x": 1}}


def test_adding_a_layer_does_not_change_the_layer_itself():
    lower = {"a": {"x": 1}}
    layered((lower, "recipe"), ({"a": {"x": 2}}, "file"))
    assert lower == {"a": {"x": 1}}


def test_later_layers_rank_higher():
    layers = layered(({"a": 1}, "recipe"), ({"a": 2}, "file"))
    assert layers.rank("file") > layers.rank("recipe")


def test_the_origin_of_an_item_is_that_of_its_list():
    assert origin_of({"loggers": "file"}, "loggers.0.use") == "file"
    assert origin_of({"loggers": "file"}, "env") == ""


def test_differences_name_changed_added_and_removed_leaves():
    old = {"a": {"x": 1, "y": 2}, "b": [1]}
    new = {"a": {"x": 1, "z": 3}, "b": [2]}
    assert differences(old, new) == [
        "a.y: 2 -> (absent)",
        "a.z: (absent) -> 3",
        "b: [1] -> [2]",
    ]
