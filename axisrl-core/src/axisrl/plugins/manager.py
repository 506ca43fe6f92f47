"""PluginManager: discover, activate, find and build; the typed face of everything about plugins.

1. ``discover`` reads metadata and imports nothing.
2. ``activate_for`` imports exactly the plugins a run names, all or none.
3. ``find`` and ``build`` turn ids into components and objects.
4. ``manifest`` and ``restore`` take the same plugins into another process.

It reads no environment variable (see :class:`axisrl.plugins.records.PluginOptions`) and never
imports a plugin that nothing asked for.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import platform
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from axisrl import __version__
from axisrl.errors import PluginError, PluginMismatch, UsageError
from axisrl.plugins import API_VERSION
from axisrl.plugins.activation import activate_one, deactivate_one, refusal
from axisrl.plugins.building import check_extras, construct, import_attribute
from axisrl.plugins.components import ComponentRef, Kind
from axisrl.plugins.discovery import file_record, mark, normalize, resolve_local, scan
from axisrl.plugins.known import not_installed
from axisrl.plugins.lifecycle import Lifecycle
from axisrl.plugins.manifest import ManifestEntry, PluginManifest
from axisrl.plugins.records import CORE, PluginOptions, PluginRecord
from axisrl.plugins.resolve import Resolved, parse_id, resolve

if TYPE_CHECKING:
    from axisrl.types import BuildContext

_log = logging.getLogger("axisrl.plugins")
_NO_OPTIONS = PluginOptions()


class PluginManager(Lifecycle):
    """The plugins of one process. Made by :meth:`discover` or :meth:`restore`."""

    def __init__(
        self,
        records: Sequence[PluginRecord],
        *,
        requested: Sequence[str] = (),
        options: PluginOptions = _NO_OPTIONS,
    ) -> None:
        super().__init__(strict=options.strict)
        mark(records, options)
        self._records = tuple(records)
        self._requested = tuple(requested)
        self._options = options

    @classmethod
    def discover(
        cls,
        *,
        local: Sequence[str | Path] = (),
        before: PluginManifest | None = None,
        options: PluginOptions = _NO_OPTIONS,
    ) -> PluginManager:
        """What is installed, and what ``local`` (the values of ``--plugin``: installed names, files
        or modules) adds.

        ``before``: what a run that is resumed had. It is asked for again, a local plugin with the
        text of then, unless ``local`` has one of that name.

        Raises ``UsageError`` or ``PluginError`` for a local value or ``--no-plugin`` that means
        nothing.
        """
        records = scan(__version__)
        requested = []
        for item in dict.fromkeys(local):
            found = resolve_local(item, records)
            if isinstance(found, PluginRecord):
                records.append(found)
            requested.append(found if isinstance(found, str) else found.name)
        for entry in before.plugins if before else ():
            if not any(record.name == entry.name for record in records):
                if entry.distribution:
                    continue  # uninstalled since: whoever compares manifests says so
                records.append(_local_record(entry))
            requested.append(entry.name)
        return cls(records, requested=requested, options=options)

    @classmethod
    def restore(
        cls, manifest: PluginManifest, *, options: PluginOptions = _NO_OPTIONS
    ) -> PluginManager:
        """The plugins of another process, active in this one.

        Raises ``PluginMismatch`` that names this node, each plugin that differs and both versions.
        """
        records = scan(__version__)
        wanted = {entry.name: entry for entry in manifest.plugins}
        rivals = tuple(
            record.distribution
            for record in records
            if record.name in wanted and record.distribution != wanted[record.name].distribution
        )
        records += [_local_record(e) for e in manifest.plugins if not e.distribution]
        manager = cls(records, options=replace(options, disable=rivals))
        here = manager._manifest_of(
            record for record in records if record.name in wanted and record.state != "disabled"
        )
        differences = manifest.differences(here, mine="driver", theirs="worker")
        if differences:
            raise PluginMismatch(
                f"node {platform.node()} differs from the driver: {'; '.join(differences)}",
                fix="install the driver's versions on every node",
            )
        manager.activate(wanted)
        return manager

    def records(self) -> Sequence[PluginRecord]:
        """Every plugin found, core first."""
        return self._records

    @property
    def requested(self) -> tuple[str, ...]:
        """Names of the plugins that ``local`` asked for."""
        return self._requested

    def activate(self, names: Iterable[str], *, required: bool = True) -> None:
        """Activate core and these plugins; disabled ones are left out.

        ``required``: all or none, raising ``PluginError`` for the first that cannot be used.
        Otherwise those that can are activated and the rest are warned about.
        """
        fresh: list[PluginRecord] = []
        failures: list[PluginError] = []
        for name in dict.fromkeys([CORE, *names]):
            try:
                fresh.extend(self._activate_one(name))
            except PluginError as error:
                failures.append(error)
                required = required or name == CORE
        if failures and (required or self._options.strict):
            for record in fresh:
                deactivate_one(record, self._pluggy)
            raise _first_of(failures)
        for failure in failures:
            _log.warning("left out: %s", failure)

    def activate_for(self, refs: Iterable[ComponentRef], plugins: Iterable[str] = ()) -> None:
        """Activate everything a run asks for: the plugins of its qualified ids, its ``plugins``
        list, ``--plugin`` and ``AXISRL_PLUGINS``; then check ``AXISRL_REQUIRE_PLUGINS``.

        Raises ``PluginError`` for a component whose plugin is disabled, and as ``activate``.
        """
        owners: list[str] = []
        for ref in refs:
            owner = parse_id(ref.use).plugin
            if owner is not None:
                owners.append(owner)
                if self._record(owner).state == "disabled":
                    raise refusal(self._record(owner), f"{ref.kind} {ref.use}")
        self.activate([*owners, *plugins, *self._requested])
        self.activate(self._options.activate, required=False)
        if self._options.strict:
            self._refuse_unusable()
        for requirement in self._options.require:
            self._check_required(requirement)

    def find(self, kind: Kind, ref: str, path: str = "") -> Resolved:
        """The component a qualified or bare id means; ``path`` is its config key, for messages.

        Bare ids are looked up among the active plugins. Raises ``PluginError`` when the plugin is
        not installed or not usable, ``ConfigError`` when the id names nothing or two things.
        """
        self.activate(())
        owner = parse_id(ref, path).plugin
        if owner is not None:
            record = self._record(owner, path)
            if record.state == "found":
                prefix = f"{path}: " if path else ""
                raise PluginError(
                    f"{prefix}{ref}: plugin {record.origin} is installed but not active",
                    fix=f"add --plugin {owner}, or list it under `plugins`",
                )
            if record.state != "active":
                raise refusal(record, path)
        return resolve(kind, ref, self._records, path)

    def config_class(self, resolved: Resolved) -> type:
        """The config dataclass of a component; ``NoConfig`` when it takes no options."""
        if resolved.component.config is None:
            from axisrl.config.base import NoConfig

            return NoConfig
        cls = import_attribute(resolved.id, resolved.component.config)
        if not (isinstance(cls, type) and is_dataclass(cls)):
            raise PluginError(f"{resolved.id}: config {resolved.component.config} is no dataclass")
        return cls

    def load(self, resolved: Resolved) -> Any:
        """What the component's target names. Raises ``PluginError`` when an extra is missing."""
        check_extras(resolved.id, resolved.component, self._record(resolved.plugin))
        return import_attribute(resolved.id, resolved.component.target)

    def build(self, kind: Kind, ref: ComponentRef, context: BuildContext, path: str = "") -> Any:
        """Make the object, as :meth:`factory` says."""
        return self.factory(kind, ref, path)(context)

    def factory(
        self, kind: Kind, ref: ComponentRef, path: str = ""
    ) -> Callable[[BuildContext], Any]:
        """What makes the object, as often as it is called: find, check extras, validate options and
        import now; construct then.

        ``path`` is the config key of ``ref``, for messages. Raises ``ConfigError`` for wrong
        options and ``PluginError`` for everything that is the plugin's fault.
        """
        from axisrl.config.validate import validate

        resolved = self.find(kind, ref.use, path)
        check_extras(resolved.id, resolved.component, self._record(resolved.plugin))
        config: Any = validate(self.config_class(resolved), ref.options, path=path)
        return partial(construct, resolved.id, self.load(resolved), config)

    def manifest(self) -> PluginManifest:
        """The active plugins, for :meth:`restore` and for the run's folder."""
        return self._manifest_of(record for record in self._records if record.state == "active")

    def _manifest_of(self, records: Iterable[PluginRecord]) -> PluginManifest:
        entries = tuple(_entry(record) for record in records if record.name != CORE)
        return PluginManifest(api=API_VERSION, core=__version__, plugins=entries)

    def _record(self, name: str, where: str = "") -> PluginRecord:
        named = [record for record in self._records if record.name == name]
        usable = [record for record in named if record.state != "disabled"]
        if named:
            return (usable or named)[0]
        if name == CORE:
            raise PluginError("axisrl-core is not installed", fix="pip install axisrl-core")
        raise not_installed(name, [record.name for record in self._records], where)

    def _activate_one(self, name: str) -> list[PluginRecord]:
        """The record if this call made it active; nothing if it was, or is disabled."""
        record = self._record(name)
        if record.state in ("active", "disabled"):
            return []
        if record.state == "found" and activate_one(record, self._pluggy, self._hook_set):
            return [record]
        raise refusal(record)

    def _refuse_unusable(self) -> None:
        for record in self._records:
            if record.state in ("conflict", "incompatible", "broken"):
                raise refusal(record, "AXISRL_STRICT_PLUGINS")

    def _check_required(self, text: str) -> None:
        from packaging.requirements import InvalidRequirement, Requirement

        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise UsageError(
                f"AXISRL_REQUIRE_PLUGINS: {text!r} is not a requirement",
                fix="write plugin names with versions, parted by spaces: audit>=1.2 trace",
            ) from error
        for record in self._records:
            names = (record.name, normalize(record.distribution))
            if record.state == "active" and normalize(requirement.name) in names:
                if requirement.specifier.contains(record.version or "0", prereleases=True):
                    return
                raise PluginError(
                    f"AXISRL_REQUIRE_PLUGINS asks for {text}, active is {record.origin}",
                    fix=f"pip install '{record.distribution}{requirement.specifier}'",
                )
        raise PluginError(
            f"AXISRL_REQUIRE_PLUGINS asks for {text}, which this run does not activate",
            fix=f"install it and add --plugin {requirement.name} or AXISRL_PLUGINS",
        )


def _first_of(failures: Sequence[PluginError]) -> PluginError:
    first, rest = failures[0], failures[1:]
    if not rest:
        return first
    also = "; ".join(failure.message for failure in rest)
    both = PluginError(f"{first.message}; also: {also}", fix=first.fix)
    both.__cause__ = first.__cause__
    return both


def _entry(record: PluginRecord) -> ManifestEntry:
    digest = ""
    if record.source == "file" and record.text is not None:
        digest = sha256(record.text).hexdigest()
    elif record.source == "module":
        spec = importlib.util.find_spec(record.value)
        if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
            digest = sha256(Path(spec.origin).read_bytes()).hexdigest()
    return ManifestEntry(
        name=record.name,
        value=record.value,
        distribution=record.distribution,
        version=record.version,
        sha256=digest,
        text=record.text,
    )


def _local_record(entry: ManifestEntry) -> PluginRecord:
    if entry.text is None:
        return PluginRecord(name=entry.name, value=entry.value, source="module")
    folder = Path(tempfile.gettempdir()) / "axisrl-local" / entry.sha256
    path = folder / f"{entry.name.replace('-', '_')}.py"
    # The copy serves tracebacks only: the text of the manifest is what runs.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(entry.text)
        part.replace(path)
    return file_record(entry.name, entry.text, path)
