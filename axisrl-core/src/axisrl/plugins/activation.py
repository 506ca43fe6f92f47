"""Bring one plugin to life: import, API check, lint, registration, collection of its descriptors.

Whatever goes wrong ends in the record's state and note and leaves nothing registered. Which plugins
are brought to life, and what a failure means to the run, is the manager's business.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import pluggy

from axisrl.errors import PluginError
from axisrl.plugins import API_VERSION
from axisrl.plugins.building import import_plugin, last_line
from axisrl.plugins.components import KINDS, Component, Kind
from axisrl.plugins.lifecycle import HookSet
from axisrl.plugins.lint import HookFunction, hook_functions, lint_components, lint_hooks
from axisrl.plugins.records import PluginRecord

MakeHooks = Callable[[str, Sequence[HookFunction]], HookSet]


def activate_one(record: PluginRecord, manager: pluggy.PluginManager, make: MakeHooks) -> bool:
    """Make the record ``active`` and return True, or ``broken`` or ``incompatible`` and return
    False."""
    started = time.perf_counter()
    try:
        module = import_plugin(record)
        if _fits(module, record) and _is_clean(lint_hooks(module), record):
            _register(record, list(hook_functions(module)), manager, make)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  (SystemExit and foreign ones)
        record.state, record.note, record.error = "broken", last_line(error), error
        record.traceback = "".join(traceback.format_exception(error))
    record.seconds = time.perf_counter() - started
    return record.state == "active"


def deactivate_one(record: PluginRecord, manager: pluggy.PluginManager) -> None:
    """Undo ``activate_one`` of an active plugin; its module stays imported."""
    manager.unregister(name=record.name)
    record.state, record.components = "found", {}


def refusal(record: PluginRecord, where: str = "") -> PluginError:
    """The error for a plugin that a run asks for and that cannot be used."""
    said = {
        "conflict": f"plugin {record.name} is ambiguous: {record.note}",
        "incompatible": f"plugin {record.origin} does not fit this core: {record.note}",
        "disabled": f"plugin {record.origin} is disabled {record.note}",
    }
    message = said.get(record.state, f"plugin {record.origin} is broken: {record.note}")
    fixes = {"disabled": "remove it from there, or from the run's configuration"}
    name = record.path or (record.name if record.distribution else record.value)
    fix = record.fix or fixes.get(record.state, f"axisrl plugins show {name} --traceback")
    error = PluginError(f"{where}: {message}" if where else message, fix=fix)
    error.__cause__ = record.error
    return error


def _fits(module: ModuleType, record: PluginRecord) -> bool:
    declared = getattr(module, "AXISRL_API", API_VERSION)
    if declared == API_VERSION:
        return True
    newer = isinstance(declared, int) and declared > API_VERSION
    record.state = "incompatible"
    record.note = f"it is written for plugin API {declared}, this core has {API_VERSION}"
    upgrade = "axisrl-core" if newer else record.distribution
    record.fix = f"pip install --upgrade {upgrade}" if upgrade else f"port it to API {API_VERSION}"
    return False


def _is_clean(problems: Sequence[str], record: PluginRecord) -> bool:
    if problems:
        record.state, record.note = "broken", "; ".join(problems)
    return not problems


def _register(
    record: PluginRecord,
    hooks: Sequence[HookFunction],
    manager: pluggy.PluginManager,
    make: MakeHooks,
) -> None:
    components, problems = _collect(hooks)
    if not _is_clean(problems, record):
        return
    manager.register(make(record.name, hooks), name=record.name)
    try:
        manager.check_pending()
    except pluggy.PluginValidationError:
        manager.unregister(name=record.name)
        raise
    record.state, record.components = "active", components


def _collect(
    hooks: Sequence[HookFunction],
) -> tuple[Mapping[Kind, tuple[Component, ...]], list[str]]:
    components: dict[Kind, tuple[Component, ...]] = {}
    problems: list[str] = []
    for kind, info in KINDS.items():
        returned: list[Component] = []
        for hook in hooks:
            if hook.hook == info.hook:
                answer = hook.function()
                if answer is None:
                    problems.append(f"{info.hook} returned None, not descriptors")
                returned.extend(answer or ())
        problems.extend(lint_components(kind, returned))
        if returned:
            components[kind] = tuple(returned)
    return components, problems
