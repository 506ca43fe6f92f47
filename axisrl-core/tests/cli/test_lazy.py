from __future__ import annotations

import sys

import click
import pytest
from click.testing import CliRunner

from axisrl.cli.lazy import LazyCommand, LazyGroup
from axisrl.errors import UsageError

GROUP = LazyGroup(
    "tool",
    lazy={
        "first": LazyCommand("a_module_that_is_not_there:command", "Do the first thing."),
        "config": LazyCommand("axisrl.cli.config:config", "Show what can be configured."),
    },
)


def test_help_lists_commands_in_order_without_importing_them():
    result = CliRunner().invoke(GROUP, ["--help"])
    assert result.exit_code == 0
    first, second = result.output.splitlines()[-2:]
    assert first.split(maxsplit=1) == ["first", "Do the first thing."]
    assert second.split(maxsplit=1) == ["config", "Show what can be configured."]


def test_a_command_is_imported_when_it_is_called(monkeypatch):
    monkeypatch.delitem(sys.modules, "axisrl.cli.config", raising=False)
    result = CliRunner().invoke(GROUP, ["config", "--help"])
    assert result.exit_code == 0
    assert "axisrl.cli.config" in sys.modules


def test_an_unknown_command_names_the_nearest():
    with pytest.raises(UsageError, match="tool has no command 'confg'; did you mean config"):
        GROUP.resolve_command(click.Context(GROUP, info_name="tool"), ["confg"])
