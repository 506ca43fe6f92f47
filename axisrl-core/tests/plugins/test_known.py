from __future__ import annotations

import pytest

from axisrl.plugins import KINDS
from axisrl.plugins.known import known_plugins, not_installed, owners, pip_command, suggestion
from axisrl.plugins.manager import PluginManager


def test_the_first_party_plugins_are_known():
    assert set(known_plugins()) == {
        "e2b-leetcode",
        "grpo",
        "gsm8k",
        "icepop",
        "local",
        "magi",
        "megatron",
        "ppo",
        "search-r1",
        "sglang",
    }


@pytest.mark.parametrize("name", known_plugins())
def test_an_installed_plugin_offers_what_the_list_says(name):
    manager = PluginManager.discover()
    records = [record for record in manager.records() if record.name == name]
    if not records:
        pytest.skip(f"axisrl-plugin-{name} is not installed")
    manager.activate([name])
    offered = {kind: {c.name for c in found} for kind, found in records[0].components.items()}
    assert offered == {kind: set(names) for kind, names in known_plugins()[name].items()}


def test_the_list_holds_kinds_and_names_only():
    for kinds in known_plugins().values():
        assert kinds.keys() <= KINDS.keys()
        assert all(isinstance(name, str) for names in kinds.values() for name in names)


def test_the_owner_of_a_component_is_looked_up_by_kind():
    assert owners("env", "math") == ["gsm8k"]
    assert owners("loss", "math") == []


def test_the_pip_command_names_the_distribution():
    assert pip_command("gsm8k") == "pip install axisrl-plugin-gsm8k"


def test_a_suggestion_needs_a_close_name():
    assert suggestion("gsm8", ["gsm8k", "local"]) == "did you mean 'gsm8k'?"
    assert suggestion("zzz", ["gsm8k", "local"]) == ""


def test_a_plugin_that_is_nowhere_gets_the_pip_command_and_the_place_it_was_named():
    error = not_installed("acme", ["local"], "plugins[0]")
    assert str(error) == (
        "plugins[0]: plugin 'acme' is not installed\n  fix: pip install axisrl-plugin-acme"
    )
