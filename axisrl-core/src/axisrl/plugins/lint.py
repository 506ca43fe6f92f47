"""Say what is wrong with a plugin module's hooks and with the descriptors they return.

pluggy alone lets most of it pass: a misspelt or undecorated hook is silently no hook, a
keyword-only argument fails at the first call. This module neither imports nor calls a plugin.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from axisrl.plugins.components import KINDS, CommandComponent, Component, Kind, RecipeComponent
from axisrl.plugins.hookspecs import LifecycleSpecs, RegistrySpecs
from axisrl.plugins.known import suggestion

COMPONENT_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_TARGET = re.compile(f"{_DOTTED}:{_DOTTED}")
_DATA = re.compile(rf"{_DOTTED}:[^/\\:][^\\:]*\.ya?ml")


@dataclass(frozen=True, slots=True)
class HookFunction:
    """A decorated function of a plugin module."""

    attribute: str
    hook: str
    function: Callable[..., Any]
    options: Mapping[str, Any]


def _arguments(spec: type) -> dict[str, tuple[str, ...]]:
    return {
        name: tuple(inspect.signature(function).parameters)[1:]
        for name, function in vars(spec).items()
        if name.startswith("axisrl_")
    }


REGISTRY_HOOKS = _arguments(RegistrySpecs)
"""Hook -> its argument names (none)."""
LIFECYCLE_HOOKS = _arguments(LifecycleSpecs)
HOOKS = {**REGISTRY_HOOKS, **LIFECYCLE_HOOKS}


def hook_functions(module: ModuleType) -> Iterator[HookFunction]:
    """The functions of a module that carry the ``hookimpl`` marker."""
    for attribute, function in vars(module).items():
        options = getattr(function, "axisrl_impl", None)
        if inspect.isfunction(function) and isinstance(options, dict):
            yield HookFunction(attribute, options["specname"] or attribute, function, options)


def lint_hooks(module: ModuleType) -> list[str]:
    """Problems of a plugin module: unknown, undecorated or wrongly declared hooks, or none at
    all."""
    found = list(hook_functions(module))
    decorated = {hook.attribute for hook in found}
    problems = [
        _undecorated(name)
        for name, value in vars(module).items()
        if name.startswith("axisrl_") and inspect.isroutine(value) and name not in decorated
    ]
    for hook in found:
        problems.extend(_lint_hook(hook))
    if not found and not problems:
        problems.append(f"module {module.__name__} has no @hookimpl function")
    return problems


def _undecorated(name: str) -> str:
    if name in HOOKS:
        return f"{name} lacks the @hookimpl decorator"
    return _unknown(name)


def _unknown(name: str) -> str:
    near = suggestion(name, HOOKS)
    return f"{name} is not a hook" + (f"; {near}" if near else "")


def _lint_hook(hook: HookFunction) -> Iterator[str]:
    if hook.hook not in HOOKS:
        if not hook.options["optionalhook"]:
            yield _unknown(hook.hook)
        return
    if inspect.iscoroutinefunction(hook.function) or inspect.isasyncgenfunction(hook.function):
        yield f"{hook.hook} is async; hooks are called synchronously"
    if hook.options["hookwrapper"]:
        yield f"{hook.hook} uses hookwrapper=True; use wrapper=True"
    if hook.options["wrapper"] and hook.hook in REGISTRY_HOOKS:
        yield f"{hook.hook} is a wrapper; only lifecycle hooks can be wrapped"
    if hook.options["wrapper"] and not inspect.isgeneratorfunction(hook.function):
        yield f"{hook.hook} is a wrapper but does not yield"
    yield from _lint_arguments(hook)


def _lint_arguments(hook: HookFunction) -> Iterator[str]:
    wanted = HOOKS[hook.hook]
    takes = f"takes ({', '.join(wanted)})"
    for name, parameter in inspect.signature(hook.function).parameters.items():
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            yield f"{hook.hook} has the {_KINDS[parameter.kind]} argument {name!r}; it {takes}"
        elif name not in wanted:
            near = suggestion(name, wanted)
            yield f"{hook.hook} has no argument {name!r}; it {takes}" + (
                f"; {near}" if near else ""
            )


_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "positional-only",
    inspect.Parameter.VAR_POSITIONAL: "variable",
    inspect.Parameter.KEYWORD_ONLY: "keyword-only",
    inspect.Parameter.VAR_KEYWORD: "variable keyword",
}


def lint_components(kind: Kind, returned: Iterable[object]) -> list[str]:
    """Problems of the descriptors that a plugin's hooks of one kind returned together."""
    problems: list[str] = []
    names: set[str] = set()
    hook, wanted = KINDS[kind].hook, KINDS[kind].descriptor
    for item in returned:
        if type(item) is not wanted:
            problems.append(f"{hook} returned {_describe(item)}, not {wanted.__name__}")
            continue
        problems.extend(f"{hook}: {problem}" for problem in _lint_component(item))
        if item.name in names:
            problems.append(f"{hook}: {item.name!r} is offered twice")
        names.add(item.name)
    return problems


def _describe(item: object) -> str:
    return type(item).__name__ if isinstance(item, Component) else repr(item)[:60]


def _lint_component(item: Component) -> Iterator[str]:
    if not isinstance(item.name, str) or not COMPONENT_NAME.fullmatch(item.name):
        yield f"name {item.name!r} is not lower-case letters, digits and dashes"
    yield from _lint_strings(item)
    for field in ("extras", "modules"):
        value = getattr(item, field)
        if not isinstance(value, tuple) or not all(isinstance(text, str) for text in value):
            yield f"{field} of {item.name!r} is not a tuple of strings"
    if not isinstance(item.version, int) or item.version < 1:
        yield f"version {item.version!r} of {item.name!r} is not a whole number from 1"
    if isinstance(item, CommandComponent) and not (item.help or item.summary):
        yield f"command {item.name!r} has no help"


def _lint_strings(item: Component) -> Iterator[str]:
    pattern, form = _TARGET, "'package.module:attribute'"
    strings = {"target": item.target, "config": item.config}
    if isinstance(item, RecipeComponent):
        pattern, form = _DATA, "'package:path/in/package.yaml'"
        strings = {"target": item.target, "smoke": item.smoke}
        if item.config is not None:
            yield f"{item.name!r} has a config; a recipe is data"
    for field, value in strings.items():
        if field != "target" and value is None:
            continue
        if not isinstance(value, str) or not pattern.fullmatch(value):
            yield f"{field} {value!r} of {item.name!r} is not {form}"
