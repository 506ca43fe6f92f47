"""The plugins of a run as a few hundred bytes of JSON, so that a worker or a resumed run can load
the same ones or say what differs. Holds names, versions and the text of single-file plugins; never
objects."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from axisrl.errors import PluginError


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One plugin. ``distribution`` and ``version`` are empty for a local file or module, which has
    a hash instead."""

    name: str
    value: str
    distribution: str = ""
    version: str = ""
    sha256: str = ""
    text: bytes | None = None
    """Source of a single-file plugin."""

    @property
    def described(self) -> str:
        """What differs when two entries of one name differ."""
        return f"{self.distribution} {self.version}" if self.distribution else self.sha256[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginManifest:
    """What was active: plugin API, core version, and every plugin besides core."""

    api: int
    core: str
    plugins: tuple[ManifestEntry, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``from_dict`` reads it back."""
        return {
            "api": self.api,
            "core": self.core,
            "plugins": [_entry_to_dict(entry) for entry in self.plugins],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PluginManifest:
        """Inverse of ``to_dict``. Raises ``PluginError`` for anything else."""
        try:
            return cls(
                api=int(data["api"]),
                core=str(data["core"]),
                plugins=tuple(_entry_from_dict(entry) for entry in data["plugins"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise PluginError(f"this is not a plugin manifest: {error}") from error

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> PluginManifest:
        """Inverse of ``to_json``. Raises ``PluginError`` for anything else."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise PluginError(f"this is not a plugin manifest: {error}") from error
        return cls.from_dict(data)

    def differences(self, other: PluginManifest, *, mine: str, theirs: str) -> list[str]:
        """One line a difference, naming the plugin and both versions; ``mine`` and ``theirs`` say
        whose they are (``"driver"``, ``"worker"``)."""
        lines = []
        if self.api != other.api:
            lines.append(f"plugin API: {mine} {self.api}, {theirs} {other.api}")
        if self.core != other.core:
            lines.append(f"core: {mine} axisrl-core {self.core}, {theirs} axisrl-core {other.core}")
        left = {entry.name: entry for entry in self.plugins}
        right = {entry.name: entry for entry in other.plugins}
        for name in sorted(left.keys() | right.keys()):
            a, b = (side[name].described if name in side else "has none" for side in (left, right))
            if a != b:
                lines.append(f"{name}: {mine} {a}, {theirs} {b}")
        return lines


def _entry_to_dict(entry: ManifestEntry) -> dict[str, str]:
    data = {
        "name": entry.name,
        "value": entry.value,
        "distribution": entry.distribution,
        "version": entry.version,
        "sha256": entry.sha256,
    }
    if entry.text is not None:
        data["text"] = b64encode(entry.text).decode("ascii")
    return {key: value for key, value in data.items() if value}


def _entry_from_dict(data: Mapping[str, str]) -> ManifestEntry:
    text = b64decode(data["text"], validate=True) if "text" in data else None
    digest = str(data.get("sha256", ""))
    if text is not None and sha256(text).hexdigest() != digest:
        raise ValueError(f"the text of plugin {data['name']!r} does not have its hash")
    return ManifestEntry(
        name=str(data["name"]),
        value=str(data["value"]),
        distribution=str(data.get("distribution", "")),
        version=str(data.get("version", "")),
        sha256=digest,
        text=text,
    )
