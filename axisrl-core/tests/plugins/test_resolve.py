from __future__ import annotations

import pytest

from axisrl.errors import ConfigError, PluginError
from axisrl.plugins import EnvComponent, VerifierComponent
from axisrl.plugins.records import PluginRecord
from axisrl.plugins.resolve import ParsedId, ids_of, parse_id, resolve


def plugin(name: str, *envs: str, state: str = "active") -> PluginRecord:
    components = tuple(EnvComponent(name=env, target="a:b", version=2) for env in envs)
    return PluginRecord(name=name, value="m", state=state, components={"env": components})


RECORDS = [plugin("alpha", "maze", "math"), plugin("beta", "math"), plugin("gsm8k", state="found")]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("math", ParsedId(None, "math", None)),
        ("gsm8k/math", ParsedId("gsm8k", "math", None)),
        ("gsm8k/math@2", ParsedId("gsm8k", "math", 2)),
        ("math@10", ParsedId(None, "math", 10)),
    ],
)
def test_an_id_is_split_into_its_parts(text, parsed):
    assert parse_id(text) == parsed


@pytest.mark.parametrize(
    "text", ["", "/", "a/", "/a", "a/b/c", "A/b", "a/b@", "a/b@x", "a b", "a/b\n", "a@-1"]
)
def test_what_is_no_id_is_a_config_error_that_names_the_key(text):
    with pytest.raises(ConfigError, match=r"env.use: .* is not a component id"):
        parse_id(text, "env.use")


def test_a_qualified_id_finds_its_component():
    found = resolve("env", "beta/math", RECORDS)
    assert (found.plugin, found.component.name, found.id, found.kind) == (
        "beta",
        "math",
        "beta/math",
        "env",
    )


def test_a_bare_id_that_one_active_plugin_offers_finds_it():
    assert resolve("env", "maze", RECORDS).id == "alpha/maze"


def test_an_ambiguous_bare_id_is_a_config_error_with_the_candidates():
    with pytest.raises(ConfigError, match="'math' is ambiguous: alpha/math, beta/math") as error:
        resolve("env", "math", RECORDS)
    assert error.value.exit_code == 2


def test_a_plugin_that_is_not_active_makes_nothing_ambiguous():
    records = [plugin("alpha", "math"), plugin("beta", "math", state="disabled")]
    assert resolve("env", "math", records).id == "alpha/math"


def test_a_matching_version_is_found_and_another_is_an_error_with_both():
    assert resolve("env", "beta/math@2", RECORDS).id == "beta/math"
    with pytest.raises(ConfigError, match="installed in version 2, not 1"):
        resolve("env", "beta/math@1", RECORDS)


def test_an_unknown_component_is_an_error_with_the_nearest_and_all_ids():
    with pytest.raises(ConfigError) as error:
        resolve("env", "alpha/mase", RECORDS, "env")
    assert error.value.message == "env: alpha has no env 'mase'; did you mean 'maze'?"
    assert "alpha/maze, alpha/math, beta/math" in error.value.fix


def test_a_component_of_another_kind_is_named_as_such():
    records = [
        PluginRecord(
            name="alpha",
            value="m",
            state="active",
            components={"verifier": (VerifierComponent(name="exact", target="a:b"),)},
        )
    ]
    with pytest.raises(ConfigError, match="alpha/exact is of kind verifier"):
        resolve("env", "alpha/exact", records)


def test_an_unknown_bare_id_is_an_error_with_the_nearest():
    with pytest.raises(
        ConfigError, match="no active plugin has an env 'mase'; did you mean 'maze'"
    ):
        resolve("env", "mase", RECORDS)


def test_a_bare_id_of_an_installed_plugin_that_is_not_active_says_how_to_write_it():
    records = [plugin("alpha", "maze"), plugin("gsm8k", state="found")]
    with pytest.raises(ConfigError, match="write gsm8k/math, or add --plugin gsm8k"):
        resolve("env", "math", records)


def test_a_bare_id_of_a_known_plugin_that_is_not_installed_gives_the_pip_command():
    with pytest.raises(PluginError, match="pip install axisrl-plugin-gsm8k") as error:
        resolve("env", "math", [plugin("alpha", "maze")])
    assert error.value.exit_code == 4


def test_ids_of_a_kind_are_qualified():
    assert ids_of("env", RECORDS) == ["alpha/maze", "alpha/math", "beta/math"]
    assert ids_of("loss", RECORDS) == []
