"""``axisrl plugins``: what is installed, what one plugin offers, whether it keeps its contracts.

The list reads metadata and imports no plugin; with ``--kind``, and for ``show``, plugins are
imported in a child process. A broken plugin is a line of the table.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from axisrl.cli.tables import print_table, printable
from axisrl.errors import UsageError
from axisrl.plugins import KINDS
from axisrl.plugins.building import extras_command
from axisrl.plugins.manager import PluginManager
from axisrl.plugins.records import CORE, PluginOptions, PluginRecord


class _ListByDefault(click.Group):
    """``axisrl plugins --json`` is ``axisrl plugins list --json``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {name for param in self.get_params(ctx) for name in param.opts}
        if not args or (args[0].startswith("-") and args[0] not in own):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListByDefault)
def plugins() -> None:
    """List, show and check plugins; without a command, list."""


@plugins.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON list instead of a table.")
@click.option("--kind", type=click.Choice(list(KINDS)), help="Only plugins with this kind.")
@click.option("--all", "everything", is_flag=True, help="Core's own components too.")
@click.option("--requirements", is_flag=True, help="Lines for a requirements.txt.")
def list_command(as_json: bool, kind: str | None, everything: bool, requirements: bool) -> None:
    """List installed plugins and their states."""
    records = [r for r in _manager().records() if everything or r.name != CORE]
    if requirements:
        for line in sorted({f"{r.distribution}=={r.version}" for r in records}):
            click.echo(line)
    elif kind is not None:
        _list_kind(kind, records, as_json)
    elif as_json:
        click.echo(json.dumps([record.facts() for record in records], indent=2))
    elif not records:
        click.echo("no plugins are installed; start with: pip install axisrl-plugin-gsm8k")
    else:
        columns = ("name", "distribution", "version", "state", "note")
        print_table(columns, [[r.facts()[column] for column in columns] for r in records])


@plugins.command("show")
@click.argument("name")
@click.option("--traceback", "with_traceback", is_flag=True, help="Where its import failed.")
def show_command(name: str, with_traceback: bool) -> None:
    """Show the components of NAME (a plugin, ./file.py or a module) and their options."""
    from axisrl.cli.plugin_facts import gather

    PluginManager.discover(local=[name])
    for facts in gather([name]):
        _print_header(facts)
        for component in facts["components"]:
            _print_component(component, facts["distribution"])
        if with_traceback:
            click.echo(f"\n{facts['traceback'] or 'no exception was raised'}")


@plugins.command("check")
@click.argument("name")
@click.option("--junit", type=click.Path(path_type=Path), help="Write a JUnit XML report here.")
@click.pass_context
def check_command(context: click.Context, name: str, junit: Path | None) -> None:
    """Run the conformance suites on every component of NAME."""
    if "/" in name or name.endswith(".py"):
        raise UsageError(
            f"{name} is a path: the suites try an installed plugin, by its name",
            fix="pip install -e its project, then axisrl plugins check NAME",
        )
    PluginManager.discover(local=[name])
    from axisrl.testing.check import run_check

    context.exit(run_check(name, junit))


def _manager() -> PluginManager:
    options = PluginOptions.from_mapping(os.environ)
    return PluginManager.discover(options=options)


def _list_kind(kind: str, records: list[PluginRecord], as_json: bool) -> None:
    from axisrl.cli.plugin_facts import gather

    found = gather(list(dict.fromkeys(record.name for record in records)))
    for facts in found:
        facts["components"] = [c for c in facts["components"] if c["kind"] == kind]
    offering = [facts for facts in found if facts["components"]]
    if as_json:
        click.echo(json.dumps(offering, indent=2))
    else:
        rows = [
            (c["id"], f["distribution"], f["version"], c["summary"], _note(c))
            for f in offering
            for c in f["components"]
        ]
        print_table((kind, "distribution", "version", "summary", "note"), rows)
    silent = [f"{f['name']} ({f['state']})" for f in found if f["state"] != "active"]
    if silent:
        click.echo(f"not loaded: {', '.join(silent)}; see `axisrl plugins show NAME`", err=True)


def _note(component: dict[str, Any]) -> str:
    from axisrl.cli.plugin_facts import kind_of

    return "preset: --config" if kind_of(component) == "preset" else _needs(component)


def _needs(component: dict[str, Any]) -> str:
    extras = ", ".join(component["extras"])
    return f"needs extra {extras or component['missing']}" if component["missing"] else ""


def _print_header(facts: dict[str, Any]) -> None:
    where = f"{facts['distribution']} {facts['version']}" if facts["distribution"] else "local"
    click.echo(printable(f"{facts['name']}  {where}  {facts['state']}"))
    for label in ("note", "fix"):
        if facts[label]:
            click.echo(printable(f"  {label}: {facts[label]}"))
    if facts["seconds"] is not None:
        click.echo(f"  import: {facts['seconds'] * 1000:.0f} ms")
    for link in _links(facts["distribution"]):
        click.echo(printable(f"  {link}"))


def _links(distribution: str) -> list[str]:
    from importlib import metadata

    try:
        urls = metadata.metadata(distribution).get_all("Project-URL") if distribution else None
    except metadata.PackageNotFoundError:
        return []
    return [url.replace(", ", ": ", 1) for url in urls or []]


def _print_component(component: dict[str, Any], distribution: str) -> None:
    from axisrl.cli.plugin_facts import kind_of

    kind = kind_of(component)
    click.echo(printable(f"\n{kind}  {component['id']}  {component['summary']}"))
    click.echo(printable(f"  {component['target']}  (version {component['version']})"))
    facts = {name: value for name, value in component["facts"].items() if name != "preset"}
    known = {name: value for name, value in facts.items() if value not in (None, "")}
    if known:
        click.echo(printable("  " + ", ".join(f"{k}={_text(v)}" for k, v in known.items())))
    if kind == "preset":
        click.echo(printable(f"  use: axisrl run RECIPE --config {component['id']}"))
    if component["missing"]:
        command = extras_command(component["extras"], component["missing"], distribution)
        click.echo(printable(f"  {_needs(component)}: {command}"))
    if component["options_error"]:
        click.echo(printable(f"  options: {component['options_error']}"))
    if component["options"]:
        rows = [
            (
                o["name"],
                o["type"],
                "(required)" if o["required"] else _text(o["default"]),
                o["help"],
            )
            for o in component["options"]
        ]
        print_table(("option", "type", "default", "help"), rows, indent=2)


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)
