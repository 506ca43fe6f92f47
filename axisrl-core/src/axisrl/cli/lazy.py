"""LazyGroup: a click group that knows its commands' names and help before importing any of them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from axisrl.errors import UsageError


class LazyCommand(NamedTuple):
    """Where a command is (``"module:attr"``) and its line in the list of commands."""

    target: str
    help: str


class LazyGroup(click.Group):
    """Imports a command's module when that command is called; ``--help`` imports none."""

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order they were given."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported; None for a name that is not there."""
        found = self.lazy.get(cmd_name)
        if found is None:
            return None
        module, _, attribute = found.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises ``UsageError`` with the nearest name for a command that is not there."""
        name = args[0]
        command = self.get_command(ctx, name)
        if command is not None or ctx.resilient_parsing:
            return name, command, args[1:]
        raise UsageError(
            f"{ctx.command_path} has no command {name!r}{_hint(name, self.list_commands(ctx))}",
            fix=f"{ctx.command_path} --help lists them",
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the help texts given at registration."""
        rows = [(name, command.help) for name, command in self.lazy.items()]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def _hint(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
