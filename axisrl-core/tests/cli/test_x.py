from __future__ import annotations

import sys

from click.testing import CliRunner

from axisrl.cli.main import main


def x(*arguments: str):
    return CliRunner().invoke(main, ["x", *arguments])


def test_a_plugins_command_runs_under_its_plugins_name(toy):
    result = x("toy", "hello")
    assert result.exit_code == 0
    assert result.output == "hello from toy\n"


def test_the_plugins_help_imports_no_command(toy):
    result = x("toy", "--help")
    assert "hello  Greet." in result.output
    assert "axisrl_toy.commands" not in sys.modules


def test_the_list_of_plugins_imports_no_plugin(toy, site):
    """Pitfall 27: a broken plugin is a line of the list."""
    site.add("broken", "raise RuntimeError('no')")
    result = x("--help")
    assert result.exit_code == 0
    assert "axisrl x toy --help" in result.output
    assert "axisrl x broken --help" in result.output
    assert "axisrl_toy.plugin" not in sys.modules


def test_an_unknown_command_of_a_plugin_names_the_nearest(toy):
    result = x("toy", "helo")
    assert result.exit_code == 2
    assert "axisrl x toy has no command 'helo'; did you mean hello?" in result.stderr


def test_a_broken_plugin_is_an_error_with_exit_code_4(site):
    site.add("broken", "raise RuntimeError('no')")
    result = x("broken", "--help")
    assert result.exit_code == 4
    assert "broken" in result.stderr


def test_an_unknown_plugin_is_an_error_with_exit_code_4():
    result = x("nowhere", "do")
    assert result.exit_code == 4
    assert "'nowhere' is not installed" in result.stderr


def test_a_disabled_plugin_says_so(toy, monkeypatch):
    monkeypatch.setenv("AXISRL_DISABLE_PLUGINS", "toy")
    result = x("toy", "hello")
    assert result.exit_code == 4
    assert "disabled" in result.stderr
