from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from axisrl import __version__
from axisrl.cli import main as module
from axisrl.cli.lazy import LazyCommand
from axisrl.errors import AxisrlError, EnvironmentProblem, PluginError, RunFailed, UsageError

RAISES: list[BaseException] = []


@click.command()
def failing() -> None:
    raise RAISES[-1]


@pytest.fixture
def fail(monkeypatch):
    """Run a command that raises; returns the result."""
    commands = {"failing": LazyCommand(f"{__name__}:failing", "")}
    monkeypatch.setattr(module.main, "lazy", commands)
    monkeypatch.setattr(module.main, "get_command", lambda ctx, name: failing)

    def fail(error: BaseException, *options: str):
        RAISES.append(error)
        return CliRunner().invoke(module.main, [*options, "failing"])

    return fail


@pytest.mark.parametrize(
    ("kind", "code"), [(RunFailed, 1), (UsageError, 2), (EnvironmentProblem, 3), (PluginError, 4)]
)
def test_an_error_is_one_message_its_fix_and_its_exit_code(fail, kind: type[AxisrlError], code):
    result = fail(kind("the lamp is off", fix="turn it on"))
    assert result.exit_code == code
    assert result.stderr == "error: the lamp is off\nfix: turn it on\n"
    assert result.stdout == ""


def test_an_error_without_a_fix_is_one_line(fail):
    assert fail(UsageError("no")).stderr == "error: no\n"


def test_debug_shows_the_traceback_and_the_same_message(fail):
    result = fail(UsageError("no"), "--debug")
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.endswith("error: no\n")
    assert result.exit_code == 2


def test_an_interrupt_exits_with_130(fail):
    result = fail(KeyboardInterrupt())
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"


def test_a_bug_is_not_dressed_up_as_a_message(fail):
    assert isinstance(fail(ZeroDivisionError("oops")).exception, ZeroDivisionError)


def test_the_version_is_the_packages():
    assert CliRunner().invoke(module.main, ["--version"]).output.strip().endswith(__version__)


def test_help_names_every_command_with_its_line():
    output = CliRunner().invoke(module.main, ["--help"]).output
    for name, command in module.COMMANDS.items():
        assert f"  {name}" in output
        assert command.help in output


def test_a_misspelt_command_exits_with_2_and_the_nearest():
    result = CliRunner().invoke(module.main, ["rnu"])
    assert result.exit_code == 2
    assert "no command 'rnu'; did you mean run?" in result.stderr


@pytest.mark.parametrize("name", ["run", "config", "models", "runs", "view", "plugins", "x"])
def test_every_command_has_help(name):
    result = CliRunner().invoke(module.main, [name, "--help"])
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: axisrl {name}")
