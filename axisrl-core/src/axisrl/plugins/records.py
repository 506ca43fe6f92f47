"""What the manager knows about each plugin, and what the environment asks of it. No logic of its
own, no import of any plugin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from axisrl.plugins.components import Component, Kind

State = Literal["found", "disabled", "conflict", "incompatible", "broken", "active"]
Source = Literal["installed", "file", "module"]

CORE = "core"
"""Name of the plugin inside axisrl-core: always active."""
CORE_DISTRIBUTION = "axisrl-core"
PLUGIN_NAME = re.compile(r"[a-z][a-z0-9-]*")


@dataclass(slots=True, kw_only=True, eq=False)
class PluginRecord:
    """One plugin as found. Only the manager changes it."""

    name: str
    value: str
    """The module with its hooks."""
    distribution: str = ""
    """Empty for a local file or module."""
    version: str = ""
    source: Source = "installed"
    path: Path | None = None
    """Where a local file was read from."""
    text: bytes | None = None
    """Source of a local file."""
    state: State = "found"
    note: str = ""
    """Why it is not usable, in one line."""
    fix: str = ""
    """What the user can do about ``note``."""
    traceback: str = ""
    error: BaseException | None = None
    seconds: float | None = None
    """Import, lint and registration."""
    components: Mapping[Kind, tuple[Component, ...]] = field(default_factory=dict)
    """Known once it is active."""

    @property
    def origin(self) -> str:
        """``"gsm8k (axisrl-plugin-gsm8k 0.1.0)"``, for messages."""
        where = f"{self.distribution} {self.version}" if self.distribution else self.value
        return f"{self.name} ({self.path or where})"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds it has components of."""
        return tuple(self.components)

    def facts(self) -> dict[str, str]:
        """What a listing shows; JSON."""
        shown = ("name", "distribution", "version", "state", "note", "fix")
        return {name: getattr(self, name) for name in shown}


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOptions:
    """What the environment and the command line say about plugins in general."""

    activate: tuple[str, ...] = ()
    """``AXISRL_PLUGINS``: observers of every run; a broken one is warned about, not fatal."""
    disable: tuple[str, ...] = ()
    """``AXISRL_DISABLE_PLUGINS``: plugin or distribution names; unknown ones are ignored."""
    no_plugin: tuple[str, ...] = ()
    """``--no-plugin``: the same, but an unknown name is an error."""
    strict: bool = False
    """``AXISRL_STRICT_PLUGINS``: any unusable plugin and any raising hook ends the run."""
    require: tuple[str, ...] = ()
    """``AXISRL_REQUIRE_PLUGINS``: requirements (``audit>=1.2``) on the active plugins."""

    @classmethod
    def from_mapping(cls, environ: Mapping[str, str]) -> PluginOptions:
        """Read the ``AXISRL_*`` variables; names are parted by commas or spaces, requirements by
        spaces."""
        return cls(
            activate=_names(environ.get("AXISRL_PLUGINS", "")),
            disable=_names(environ.get("AXISRL_DISABLE_PLUGINS", "")),
            strict=environ.get("AXISRL_STRICT_PLUGINS", "").lower() in ("1", "true", "yes"),
            require=tuple(environ.get("AXISRL_REQUIRE_PLUGINS", "").split()),
        )


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())
