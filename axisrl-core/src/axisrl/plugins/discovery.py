"""Find plugins from the metadata of installed distributions, and local ones by path or module.

1. ``scan`` reads entry points of the group ``axisrl``; a distribution with damaged metadata costs
   its own plugin, never the listing.
2. ``resolve_local`` turns the value of ``--plugin`` into an installed name or a local record.
3. ``mark`` sets the states that metadata alone decides: disabled, conflict, incompatible.

Nothing here imports a plugin, and pluggy's own entry-point loader is not used: it neither isolates
one plugin from the next nor reports two of one name.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib import metadata
from pathlib import Path

from axisrl.errors import UsageError
from axisrl.plugins.known import not_installed, suggestion
from axisrl.plugins.records import CORE, CORE_DISTRIBUTION, PLUGIN_NAME, PluginOptions, PluginRecord

GROUP = "axisrl"
_UNNAMED = "?"
MAX_LOCAL_BYTES = 256 * 1024
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def normalize(distribution: str) -> str:
    """The name under which package indexes compare distributions."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def scan(core_version: str) -> list[PluginRecord]:
    """Every plugin that an installed distribution declares, core first, then by name.

    The first distribution of a name on ``sys.path`` hides later ones, as it does for imports.
    """
    records: list[PluginRecord] = []
    seen: set[str] = set()
    for distribution in metadata.distributions():
        text = _entry_points_text(distribution)
        if text is None or GROUP not in text:
            continue
        name, version, requires = _facts(distribution)
        if normalize(name) in seen:
            continue
        if name != _UNNAMED:
            seen.add(normalize(name))
        records.extend(_records_of(distribution, name, version))
        for record in records:
            if record.distribution == name and record.state == "found":
                _check_requirement(record, requires, core_version)
    return sorted(records, key=lambda r: (not is_core(r), r.name, r.distribution))


def is_core(record: PluginRecord) -> bool:
    """True for the plugin that axisrl-core itself declares as ``core``."""
    return record.name == CORE and normalize(record.distribution) == CORE_DISTRIBUTION


def is_importable(module: str) -> bool:
    """Whether the module can be found. Imports the parents of a dotted name, not the module."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _entry_points_text(distribution: metadata.Distribution) -> str | None:
    try:
        return distribution.read_text("entry_points.txt")
    except (OSError, UnicodeDecodeError):
        return None


def _facts(distribution: metadata.Distribution) -> tuple[str, str, list[str]]:
    """Name, version and requirements; damaged metadata has none of them."""
    try:
        facts = distribution.metadata
        return facts["Name"] or _UNNAMED, facts["Version"] or "", list(distribution.requires or [])
    except Exception:  # noqa: BLE001  (damaged files raise anything)
        return _UNNAMED, "", []


def _records_of(distribution: metadata.Distribution, name: str, version: str) -> list[PluginRecord]:
    try:
        points = [point for point in distribution.entry_points if point.group == GROUP]
    except Exception as error:  # noqa: BLE001  (it has no error type)
        broken = PluginRecord(name=name, value="", distribution=name, version=version)
        broken.state, broken.error = "broken", error
        broken.note = f"entry_points.txt cannot be read: {error}"
        return [broken]
    return [_record(point, name, version) for point in points]


def _record(point: metadata.EntryPoint, distribution: str, version: str) -> PluginRecord:
    record = PluginRecord(
        name=point.name, value=point.value, distribution=distribution, version=version
    )
    if not PLUGIN_NAME.fullmatch(point.name):
        record.state = "broken"
        record.note = f"name {point.name!r} is not lower-case letters, digits and dashes"
    elif not _MODULE.fullmatch(point.value):
        record.state = "broken"
        record.note = f"entry point {point.value!r} is not a module"
    return record


def _check_requirement(record: PluginRecord, requires: Sequence[str], core_version: str) -> None:
    """Mark the record incompatible when its distribution wants another axisrl-core."""
    from packaging.requirements import InvalidRequirement, Requirement

    for text in requires:
        if not normalize(text).startswith(CORE_DISTRIBUTION):
            continue
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            record.state, record.note = "broken", f"its requirement {text!r} cannot be read"
            return
        marker = requirement.marker
        applies = marker is None or marker.evaluate({"extra": ""})
        if normalize(requirement.name) != CORE_DISTRIBUTION or not applies:
            continue
        if not requirement.specifier.contains(core_version, prereleases=True):
            wanted = f"{CORE_DISTRIBUTION}{requirement.specifier}"
            record.state = "incompatible"
            record.note = f"requires {wanted}, installed is {core_version}"
            record.fix = f"pip install '{wanted}'"


def mark(records: Sequence[PluginRecord], options: PluginOptions) -> None:
    """Set ``disabled`` and ``conflict``. Raises ``UsageError`` for a ``no_plugin`` that names
    nothing, and for core."""
    known = [name for record in records for name in (record.name, record.distribution) if name]
    for name in options.no_plugin:
        if name not in known:
            raise UsageError(
                f"--no-plugin {name}: no such plugin is installed",
                fix=suggestion(name, known) or "axisrl plugins lists the installed ones",
            )
    off = {*options.disable, *options.no_plugin}
    if off & {CORE, CORE_DISTRIBUTION}:
        raise UsageError(
            "the plugin core cannot be disabled: it is part of axisrl-core",
            fix="remove it from --no-plugin and AXISRL_DISABLE_PLUGINS",
        )
    for record in records:
        if record.name in off or record.distribution in off:
            record.state, record.note = "disabled", "by --no-plugin or AXISRL_DISABLE_PLUGINS"
    _mark_conflicts([record for record in records if record.state != "disabled"])


def _mark_conflicts(records: Sequence[PluginRecord]) -> None:
    for record in records:
        rivals = [r for r in records if r.name == record.name and r is not record]
        if not rivals or is_core(record):
            continue
        others = ", ".join(f"{r.distribution} {r.version}" for r in rivals)
        record.state = "conflict"
        record.note = f"{record.distribution} {record.version} and {others} both offer it"
        record.fix = f"pip uninstall one of them, or --no-plugin {record.distribution}"


def resolve_local(item: str | Path, records: Sequence[PluginRecord]) -> str | PluginRecord:
    """The installed plugin that ``item`` names, or a record of the file or module it points to.

    Raises ``UsageError`` for a file that is missing, too large or takes an installed name, and
    ``PluginError`` with the pip command for a name that is nowhere.
    """
    text = str(item)
    if isinstance(item, Path) or text.endswith(".py") or "/" in text or "\\" in text:
        return _local_file(Path(item), records)
    for record in records:
        if text in (record.name, record.value):
            return record.name
    if _MODULE.fullmatch(text) and is_importable(text.partition(".")[0]):
        name = _local_name(text.rpartition(".")[2], text, records)
        return PluginRecord(name=name, value=text, source="module")
    raise not_installed(text, [record.name for record in records])


def _local_file(path: Path, records: Sequence[PluginRecord]) -> PluginRecord:
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(f"--plugin {path}: no such Python file", fix="give the path of a .py file")
    text = path.read_bytes()
    if len(text) > MAX_LOCAL_BYTES:
        raise UsageError(
            f"--plugin {path}: {len(text)} bytes, the limit of a single-file plugin is "
            f"{MAX_LOCAL_BYTES}",
            fix="make it a package with an entry point: axisrl new-recipe",
        )
    name = _local_name(path.stem, str(path), records)
    return file_record(name, text, path.resolve())


def file_record(name: str, text: bytes, path: Path) -> PluginRecord:
    """A single-file plugin; its module is named after its content, so two versions never mix."""
    module = f"axisrl_local_{sha256(text).hexdigest()[:8]}"
    return PluginRecord(name=name, value=module, source="file", text=text, path=path)


def _local_name(stem: str, item: str, records: Iterable[PluginRecord]) -> str:
    name = stem.replace("_", "-")
    if not PLUGIN_NAME.fullmatch(name):
        raise UsageError(
            f"--plugin {item}: {stem!r} cannot be a plugin name",
            fix="rename it: lower-case letters, digits and underscores, a letter first",
        )
    for record in records:
        if record.name == name:
            raise UsageError(
                f"--plugin {item}: the name {name} belongs to {record.origin}",
                fix="rename the file or module",
            )
    return name
