"""``axisrl doctor``: what this machine has for axisrl, what is missing, and what that costs.

It runs the health checks of the core and of every installed plugin. One that breaks is a line of
the table. It changes nothing and installs nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict

import click

from axisrl.cli.tables import print_table
from axisrl.errors import AxisrlError, EnvironmentProblem
from axisrl.plugins import Finding
from axisrl.plugins.manager import PluginManager
from axisrl.plugins.records import CORE, PluginOptions, PluginRecord


@click.command()
@click.argument("plugins", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="One JSON list instead of a table.")
@click.pass_context
def doctor(context: click.Context, plugins: tuple[str, ...], as_json: bool) -> None:
    """Say what this machine has and lacks, for the core and for PLUGINS (all that are installed).

    Exits with 3 when something is there and broken; what is missing breaks nothing.
    """
    rows = list(_rows(plugins))
    if as_json:
        click.echo(json.dumps([{"plugin": name} | asdict(found) for name, found in rows], indent=2))
    else:
        print_table(
            ("plugin", "what", "state", "found", "cost", "fix"),
            [(name, f.name, f.state, f.found, f.cost, f.fix) for name, f in rows],
        )
    if any(found.state == "broken" for _, found in rows):
        context.exit(EnvironmentProblem.exit_code)


def _rows(wanted: Iterable[str]) -> Iterator[tuple[str, Finding]]:
    manager = PluginManager.discover(options=PluginOptions.from_mapping(os.environ))
    names = {CORE, *wanted} if wanted else {record.name for record in manager.records()} | {CORE}
    manager.activate(sorted(names - {CORE}), required=bool(wanted))
    for record in sorted(manager.records(), key=lambda each: (each.name != CORE, each.name)):
        if record.name in names and record.state != "disabled":
            for finding in _findings(manager, record):
                yield record.name, finding


def _findings(manager: PluginManager, record: PluginRecord) -> Iterator[Finding]:
    if record.note:
        yield Finding(name=record.name, state="broken", found=record.note, fix=record.fix)
    for component in record.components.get("health", ()):
        check = f"{record.name}/{component.name}"
        try:
            yield from manager.load(manager.find("health", check))()
        except AxisrlError as error:
            yield Finding(name=check, state="broken", found=error.message, fix=error.fix)
        except Exception as error:  # noqa: BLE001 - a check is foreign code, and one line of many
            told = f"{type(error).__name__}: {error}"
            yield Finding(name=check, state="broken", found=told)
