"""``axisrl models``: the named models of the installed plugins, and fetching one ahead of a run."""

from __future__ import annotations

import os

import click

from axisrl.cli.paths import cache_root
from axisrl.cli.tables import print_table
from axisrl.models import named_models, resolve_model
from axisrl.plugins.manager import PluginManager
from axisrl.plugins.records import PluginOptions


@click.group(invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> None:
    """List and fetch named models."""
    if context.invoked_subcommand is None:
        context.invoke(list_command)


@models.command("list")
def list_command() -> None:
    """List the named models of the installed plugins."""
    found = named_models(_manager())
    if not found:
        click.echo("no plugin with named models is installed: pip install axisrl-plugin-local")
        return
    rows = [(model.component.name, model.id, model.component.summary) for model in found]
    print_table(("name", "id", "summary"), rows)


@models.command("fetch")
@click.argument("name")
def fetch_command(name: str) -> None:
    """Bring NAME (a named model or a Hugging Face id) onto this machine and print its folder."""
    click.echo(resolve_model(name, _manager(), cache_root()))


def _manager() -> PluginManager:
    return PluginManager.discover(options=PluginOptions.from_mapping(os.environ))
