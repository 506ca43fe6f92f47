"""Hints about plugins that are not installed, from the bundled list ``known.yml``. Read only when
an error is being written; asks no package index."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files

from axisrl.errors import PluginError


@functools.cache
def known_plugins() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """First-party plugin -> kind -> names of its components."""
    import yaml

    text = files("axisrl.plugins").joinpath("known.yml").read_text(encoding="utf-8")
    known: Mapping[str, Mapping[str, Sequence[str]]] = yaml.safe_load(text)
    return known


def owners(kind: str, component: str) -> list[str]:
    """First-party plugins that have a component of that kind and name."""
    return [name for name, kinds in known_plugins().items() if component in kinds.get(kind, ())]


def pip_command(plugin: str) -> str:
    """What installs the plugin of that name."""
    return f"pip install axisrl-plugin-{plugin}"


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """``"did you mean 'x'?"``, or the empty string when nothing is close."""
    close = difflib.get_close_matches(name, list(candidates), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def not_installed(name: str, installed: Sequence[str], where: str = "") -> PluginError:
    """The error for a plugin that is nowhere, with the nearest name and the pip command."""
    prefix = f"{where}: " if where else ""
    near = suggestion(name, [*installed, *known_plugins()])
    if name in known_plugins() or not near:
        return PluginError(f"{prefix}plugin {name!r} is not installed", fix=pip_command(name))
    return PluginError(
        f"{prefix}plugin {name!r} is not installed; {near}",
        fix=f"correct the name, or {pip_command(name)}",
    )
