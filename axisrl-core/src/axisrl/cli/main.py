"""``axisrl``: the root of the command line, and the one place where errors become messages.

Nothing is imported here but click: every command starts fast, and an installed plugin that is
broken changes no command that does not use it.
"""

from __future__ import annotations

from typing import Any

import click

from axisrl import __version__
from axisrl.cli import INTERRUPTED
from axisrl.cli.lazy import LazyCommand, LazyGroup
from axisrl.errors import AxisrlError

COMMANDS = {
    "run": LazyCommand("axisrl.cli.run:run", "Train a model with a recipe."),
    "chaos": LazyCommand(
        "axisrl.cli.chaos:chaos", "Kill parts of a run on purpose and see it survive."
    ),
    "plugins": LazyCommand("axisrl.cli.plugins:plugins", "List, show and check plugins."),
    "config": LazyCommand("axisrl.cli.config:config", "Show what can be configured."),
    "runs": LazyCommand("axisrl.cli.runs:runs", "List runs, or show what one run learnt."),
    "view": LazyCommand("axisrl.cli.view:view", "Open a run's curves and rollouts."),
    "models": LazyCommand("axisrl.cli.models:models", "List and fetch named models."),
    "doctor": LazyCommand("axisrl.cli.doctor:doctor", "Say what this machine has and lacks."),
    "x": LazyCommand("axisrl.cli.x:x", "Run a plugin's command: axisrl x PLUGIN COMMAND."),
}


class _Root(LazyGroup):
    """Reports every error of a command as one message with its exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AxisrlError as error:
            if ctx.params.get("debug"):
                _print_traceback(error)
            _print_error(error)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            if ctx.params.get("debug"):
                raise
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


def _print_error(error: AxisrlError) -> None:
    click.echo(f"error: {error.message}", err=True)
    if error.fix:
        click.echo(f"fix: {error.fix}", err=True)


def _print_traceback(error: AxisrlError) -> None:
    import traceback

    click.echo("".join(traceback.format_exception(error)), err=True, nl=False)


@click.group(
    "axisrl",
    cls=_Root,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--debug", is_flag=True, envvar="AXISRL_DEBUG", help="Show tracebacks of errors.")
@click.version_option(__version__, prog_name="axisrl")
def main(debug: bool) -> None:
    """Agentic RL post-training for language models."""
