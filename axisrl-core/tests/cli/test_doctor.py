"""Tests of axisrl.cli.doctor."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from axisrl.cli.main import main

CHECKED = """
from axisrl.plugins import Finding, HealthComponent, hookimpl

@hookimpl
def axisrl_health_checks():
    return [
        HealthComponent(name="good", target="axisrl_checked.plugin:good"),
        HealthComponent(name="bad", target="axisrl_checked.plugin:bad"),
    ]

def good():
    yield Finding(name="kernel", state="missing", cost="slow", fix="pip install kernel")

def bad():
    yield Finding(name="first", state="ok", found="1.0")
    raise OSError("it broke")
"""


def doctor(*arguments: str):
    return CliRunner().invoke(main, ["doctor", *arguments])


@pytest.fixture
def found(site):
    """``found(*arguments)``: (plugin, name) -> finding, and the exit code."""

    def run(*arguments: str):
        result = doctor("--json", *arguments)
        rows = json.loads(result.output)
        return {(row["plugin"], row["name"]): row for row in rows}, result.exit_code

    return run


def test_the_machine_itself_is_told_without_any_plugin(found):
    rows, code = found()
    assert rows["core", "Python"]["state"] == "ok"
    assert ("core", "torch") in rows
    assert code in (0, 3)


def test_what_a_plugin_finds_is_told_with_what_it_costs(site, found):
    site.add("checked", CHECKED)
    rows, _ = found("checked")
    row = rows["checked", "kernel"]
    assert (row["state"], row["cost"], row["fix"]) == ("missing", "slow", "pip install kernel")


def test_a_check_that_breaks_is_a_line_of_its_own_and_ends_with_3(site, found):
    site.add("checked", CHECKED)
    rows, code = found("checked")
    assert rows["checked", "first"]["state"] == "ok"
    assert rows["checked", "checked/bad"]["found"] == "OSError: it broke"
    assert code == 3


def test_a_broken_plugin_is_a_line_of_the_table(site, found):
    """Pitfall 27: and the others are asked all the same."""
    site.add("broken", "raise RuntimeError('no')")
    site.add("checked", CHECKED)
    rows, code = found()
    assert rows["broken", "broken"]["state"] == "broken"
    assert ("checked", "kernel") in rows
    assert code == 3


def test_only_the_plugins_that_are_named_are_asked(site, found):
    site.add("checked", CHECKED)
    site.add("broken", "raise RuntimeError('no')")
    rows, _ = found("checked")
    assert {plugin for plugin, _ in rows} == {"core", "checked"}


def test_an_unknown_plugin_is_an_error_with_exit_code_4(site):
    result = doctor("nowhere")
    assert result.exit_code == 4
    assert "'nowhere' is not installed" in result.stderr


def test_the_table_has_a_line_a_finding(site):
    site.add("checked", CHECKED)
    line = next(line for line in doctor("checked").output.splitlines() if "kernel" in line)
    assert line.split() == ["checked", "kernel", "missing", "slow", "pip", "install", "kernel"]
