from __future__ import annotations

import json

from click.testing import CliRunner

from axisrl.cli.main import main
from axisrl.config.text import parse


def schema(*arguments: str):
    return CliRunner().invoke(main, ["config", "schema", *arguments])


def test_a_components_options_are_commented_yaml_that_can_be_pasted(toy):
    result = schema("toy/world")
    assert result.exit_code == 0
    assert parse(result.output, "output") == {"use": "toy/world", "size": 3, "shape": "flat"}
    assert "# Cells a side.\nsize: 3  # int" in result.output


def test_the_json_schema_is_json_alone(toy):
    properties = json.loads(schema("toy/world", "--json").output)["properties"]
    assert properties["size"] == {
        "default": 3,
        "description": "Cells a side.",
        "title": "Size",
        "type": "integer",
    }


def test_a_whole_run_has_a_schema_too():
    assert "group_size: 8" in schema("run").output
    assert "rollout" in json.loads(schema("run", "--json").output)["properties"]


def test_an_unknown_component_says_where_to_look(toy):
    result = schema("toy/nothing")
    assert result.exit_code == 2
    assert "there is no component toy/nothing" in result.stderr
    assert "axisrl plugins show toy" in result.stderr


TWICE = """
from axisrl.plugins import EnvComponent, VerifierComponent, hookimpl

@hookimpl
def axisrl_envs():
    return [EnvComponent(name="math", target="{module}.a:A")]

@hookimpl
def axisrl_verifiers():
    return [VerifierComponent(name="math", target="{module}.a:A")]
"""


def test_a_name_of_two_kinds_asks_which(site):
    site.add("twice", TWICE)
    result = schema("twice/math")
    assert result.exit_code == 2
    assert "several kinds: env, verifier" in result.stderr
    assert schema("twice/math", "--kind", "verifier").output.startswith("# verifier")


def test_an_unknown_plugin_exits_with_4():
    assert schema("nowhere/a").exit_code == 4
