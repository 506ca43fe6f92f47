"""Turn ``plugin/component@version`` or a bare name into one component of one active plugin.

An id that names nothing is an error with the nearest id, or the pip command where a plugin that is
not installed owns it. Activates nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from axisrl.errors import ConfigError, PluginError
from axisrl.plugins.components import Component, Kind
from axisrl.plugins.known import owners, pip_command, suggestion
from axisrl.plugins.records import PluginRecord

_ID = re.compile(
    r"(?:(?P<plugin>[a-z][a-z0-9-]*)/)?(?P<name>[a-z0-9][a-z0-9-]*)(?:@(?P<version>[0-9]+))?"
)


@dataclass(frozen=True, slots=True)
class ParsedId:
    """The parts of an id as written; ``plugin`` is None in a bare one."""

    plugin: str | None
    name: str
    version: int | None


@dataclass(frozen=True, slots=True)
class Resolved:
    """One component of one plugin."""

    plugin: str
    component: Component
    id: str
    """``plugin/component``, without a version."""
    kind: Kind


def parse_id(text: str, path: str = "") -> ParsedId:
    """Split an id. Raises ``ConfigError`` when it is not one."""
    match = _ID.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"{_at(path)}{text!r} is not a component id",
            fix="write plugin/component, for example gsm8k/math or gsm8k/math@1",
        )
    version = match["version"]
    return ParsedId(match["plugin"], match["name"], None if version is None else int(version))


def resolve(kind: Kind, ref: str, records: Sequence[PluginRecord], path: str = "") -> Resolved:
    """The component that ``ref`` means among the active ``records``.

    ``path`` is the config key it stands under, for the message. Raises ``ConfigError`` for unknown
    and ambiguous names and for another version than asked for.
    """
    parsed = parse_id(ref, path)
    active = [record for record in records if record.state == "active"]
    found = [
        Resolved(record.name, component, f"{record.name}/{component.name}", kind)
        for record in active
        if parsed.plugin in (None, record.name)
        for component in record.components.get(kind, ())
        if component.name == parsed.name
    ]
    if not found:
        raise _unknown(kind, parsed, records, path)
    if len(found) > 1:
        ids = ", ".join(one.id for one in found)
        raise ConfigError(
            f"{_at(path)}{kind} {parsed.name!r} is ambiguous: {ids}", fix="write the plugin too"
        )
    _check_version(found[0], parsed, path)
    return found[0]


def _check_version(found: Resolved, parsed: ParsedId, path: str) -> None:
    have = found.component.version
    if parsed.version not in (None, have):
        raise ConfigError(
            f"{_at(path)}{found.id} is installed in version {have}, not {parsed.version}; "
            "scores of different versions cannot be compared",
            fix=f"write {found.id}@{have}, or install the release of its plugin that has "
            f"version {parsed.version}",
        )


def _unknown(
    kind: Kind, parsed: ParsedId, records: Sequence[PluginRecord], path: str
) -> ConfigError | PluginError:
    active = {record.name: record for record in records if record.state == "active"}
    if parsed.plugin is None:
        return _unknown_bare(kind, parsed.name, records, path)
    components = active[parsed.plugin].components
    other = [k for k, items in components.items() if any(c.name == parsed.name for c in items)]
    message = f"{_at(path)}{parsed.plugin} has no {kind} {parsed.name!r}"
    if other:
        return ConfigError(
            f"{message}; {parsed.plugin}/{parsed.name} is of kind {', '.join(other)}",
            fix=f"use one of: {_listed(kind, active)}",
        )
    near = suggestion(parsed.name, [c.name for c in components.get(kind, ())])
    return ConfigError(
        message + (f"; {near}" if near else ""),
        fix=f"use one of: {_listed(kind, active)}",
    )


def _unknown_bare(
    kind: Kind, name: str, records: Sequence[PluginRecord], path: str
) -> ConfigError | PluginError:
    active = {record.name: record for record in records if record.state == "active"}
    message = f"{_at(path)}no active plugin has {_article(kind)} {name!r}"
    installed = {record.name for record in records}
    for owner in owners(kind, name):
        if owner not in installed:
            return PluginError(
                f"{message}; {owner}/{name} is not installed", fix=pip_command(owner)
            )
        if owner not in active:
            return ConfigError(message, fix=f"write {owner}/{name}, or add --plugin {owner}")
    names = {c.name for record in active.values() for c in record.components.get(kind, ())}
    near = suggestion(name, names)
    return ConfigError(
        message + (f"; {near}" if near else ""),
        fix=f"write plugin/component; active: {_listed(kind, active)}",
    )


def _listed(kind: Kind, active: Mapping[str, PluginRecord]) -> str:
    return ", ".join(ids_of(kind, active.values())) or f"(no {kind} is active)"


def ids_of(kind: Kind, records: Iterable[PluginRecord]) -> list[str]:
    """Qualified ids of one kind."""
    return [
        f"{record.name}/{component.name}"
        for record in records
        for component in record.components.get(kind, ())
    ]


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _at(path: str) -> str:
    return f"{path}: " if path else ""
