"""``axisrl x PLUGIN COMMAND``: commands that plugins bring, under the plugin's own name.

The list of plugins comes from metadata; only the named plugin is imported, and its command's module
only when the command is called.
"""

from __future__ import annotations

import os
from typing import cast

import click

from axisrl.cli.lazy import LazyCommand, LazyGroup
from axisrl.plugins.activation import refusal
from axisrl.plugins.components import CommandComponent
from axisrl.plugins.manager import PluginManager
from axisrl.plugins.records import CORE, PluginOptions, PluginRecord


class _PluginGroup(LazyGroup):
    """The commands of one plugin."""

    def __init__(self, record: PluginRecord, manager: PluginManager) -> None:
        components = record.components.get("command", ())
        helps = {
            each.name: LazyCommand(each.target, cast(CommandComponent, each).help or each.summary)
            for each in components
        }
        super().__init__(record.name, lazy=helps, help=f"Commands of {record.origin}.")
        self._manager = manager

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        found = self._manager.find("command", f"{self.name}/{cmd_name}")
        command: click.Command = self._manager.load(found)
        return command


class _Plugins(click.Group):
    """The installed plugins as groups."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        names = [r.name for r in _manager().records() if r.name != CORE and r.state == "found"]
        return sorted(set(names))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if ctx.resilient_parsing:
            return None
        manager = _manager()
        manager.activate([cmd_name])
        named = [record for record in manager.records() if record.name == cmd_name]
        record = next((each for each in named if each.state == "active"), None)
        if record is None:
            raise refusal(named[0], f"axisrl x {cmd_name}")
        return _PluginGroup(record, manager)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        if names:
            with formatter.section("Plugins"):
                formatter.write_dl([(name, f"axisrl x {name} --help") for name in names])


def _manager() -> PluginManager:
    return PluginManager.discover(options=PluginOptions.from_mapping(os.environ))


@click.group(cls=_Plugins)
def x() -> None:
    """Run a plugin's command: axisrl x PLUGIN COMMAND."""
