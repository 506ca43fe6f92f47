"""``axisrl config``: what a run and each component can be told."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, cast

import click

from axisrl.errors import ConfigError
from axisrl.plugins.manager import PluginManager
from axisrl.plugins.records import PluginOptions

if TYPE_CHECKING:
    from axisrl.plugins.components import Kind
    from axisrl.plugins.resolve import Resolved


@click.group()
def config() -> None:
    """Show what can be configured."""


@config.command("schema")
@click.argument("component")
@click.option("--json", "as_json", is_flag=True, help="JSON schema instead of commented YAML.")
@click.option("--kind", help="Which one, when a plugin has two components of that name.")
def schema_command(component: str, as_json: bool, kind: str | None) -> None:
    """Show the options of COMPONENT (plugin/component), or of a whole run with `run`."""
    from axisrl.config.render import render_defaults
    from axisrl.config.schema import RunConfig
    from axisrl.config.validate import schema_of

    manager = PluginManager.discover(options=PluginOptions.from_mapping(os.environ))
    if component == "run":
        cls: type = RunConfig
        head = ""
    else:
        found = _find(component, kind, manager)
        cls = manager.config_class(found)
        head = f"# {found.kind}  {found.component.summary}".rstrip() + f"\nuse: {found.id}\n"
    if as_json:
        click.echo(json.dumps(schema_of(cls), indent=2))
    else:
        click.echo(head + render_defaults(cls), nl=False)


def _find(component: str, kind: str | None, manager: PluginManager) -> Resolved:
    from axisrl.plugins.components import KINDS
    from axisrl.plugins.resolve import parse_id

    parsed = parse_id(component)
    manager.activate([parsed.plugin] if parsed.plugin else [])
    kinds = [
        known
        for known in KINDS
        for record in manager.records()
        if record.state == "active" and parsed.plugin in (None, record.name)
        for each in record.components.get(known, ())
        if each.name == parsed.name and kind in (None, known)
    ]
    if len(set(kinds)) > 1:
        raise ConfigError(
            f"{component} is of several kinds: {', '.join(kinds)}", fix=f"add --kind {kinds[0]}"
        )
    if not kinds and kind is None:
        raise ConfigError(
            f"there is no component {component}",
            fix=f"axisrl plugins show {parsed.plugin or 'NAME'} lists a plugin's components",
        )
    return manager.find(kinds[0] if kinds else cast("Kind", kind), component)
