"""Walks a value beside the type it is meant for: short forms, unknown keys, what pydantic lets by.

The walk turns ``env: gsm8k/math`` into ``env: {use: gsm8k/math}`` and finds unknown keys, booleans
where a number belongs and numbers that are not finite. It never judges anything else: that is
:mod:`axisrl.config.validate`.
"""

from __future__ import annotations

import functools
import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any, Union, get_args, get_origin

from axisrl.config.problems import Problem, nearest
from axisrl.config.schema import Use


@functools.cache
def hints_of(cls: type) -> dict[str, Any]:
    """Field name -> type of a dataclass, annotations resolved."""
    hints = typing.get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls)}


def arms_of(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the one type itself; ``Annotated`` is looked through."""
    if hasattr(hint, "__metadata__"):
        return arms_of(hint.__origin__)
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(arm for part in get_args(hint) for arm in arms_of(part))
    return (hint,)


def is_use(arm: Any) -> bool:
    """Whether a type names a component: :class:`Use`, or one with keys of its own beside it."""
    return isinstance(arm, type) and issubclass(arm, Use)


def expand(cls: type, value: Any, path: str = "") -> Any:
    """``value`` with every short form written out; a component's options stay beside ``use``."""
    return _Walk(None, nest=False).visit(cls, value, path)


def prepare(cls: type, value: Any, path: str = "") -> tuple[Any, list[Problem]]:
    """``value`` as pydantic takes it (options nested in :class:`Use`) and what is wrong so far."""
    walk = _Walk(cls if not path else None, nest=True)
    return walk.visit(cls, value, path), walk.problems


def plain(value: Any) -> Any:
    """A validated value as YAML data: mappings, lists and scalars; options beside ``use``."""
    if isinstance(value, Use):
        own = [item.name for item in fields(value) if item.name != "options"]
        return {**{k: plain(getattr(value, k)) for k in own}, **plain(value.options)}
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    return value


def leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Dotted keys of everything in a tree that is not a mapping with keys of its own."""
    for key, value in tree.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, Mapping) and value:
            yield from leaves(value, here)
        else:
            yield here


def keys_named(cls: type, name: str, path: str = "") -> list[str]:
    """Dotted keys below ``cls`` whose last part is ``name``, for suggestions."""
    found = []
    for key, hint in hints_of(cls).items():
        here = f"{path}.{key}" if path else key
        if key == name:
            found.append(here)
        for arm in arms_of(hint):
            if is_dataclass(arm) and not is_use(arm):
                found.extend(keys_named(typing.cast(type, arm), name, here))
    return found


@dataclass(slots=True)
class _Walk:
    root: type | None
    """Where a misplaced key is looked up; None below a component's key."""
    nest: bool
    problems: list[Problem] = field(default_factory=list)

    def visit(self, hint: Any, value: Any, path: str) -> Any:
        arms = arms_of(hint)
        if value is None and type(None) in arms:
            return None
        if isinstance(value, str) and str not in arms:
            value = self._long_form(arms, value)
        if isinstance(value, Mapping):
            return self._mapping(arms, value, path)
        if isinstance(value, list | tuple):
            return self._sequence(arms, value, path)
        self._number(arms, value, path)
        return value

    def _long_form(self, arms: tuple[Any, ...], value: str) -> Any:
        for arm in arms:
            if is_use(arm):
                return {"use": value}
            if is_dataclass(arm) and hasattr(arm, "short_form"):
                return {arm.short_form: value}
        return value

    def _mapping(self, arms: tuple[Any, ...], value: Mapping[str, Any], path: str) -> Any:
        for arm in arms:
            if is_use(arm):
                return self._use(arm, value, path)
            if is_dataclass(arm):
                return self._dataclass(typing.cast(type, arm), value, path)
            if get_origin(arm) in (dict, Mapping, typing.get_origin(Mapping[str, Any])):
                of = get_args(arm)[1]
                return {k: self.visit(of, v, _join(path, str(k))) for k, v in value.items()}
        return dict(value)

    def _use(self, arm: type, value: Mapping[str, Any], path: str) -> dict[str, Any]:
        if not self.nest:
            return dict(value)
        hints = hints_of(arm)
        own = {k: v for k, v in value.items() if k in hints and k != "options"}
        rest = {k: v for k, v in value.items() if k not in own}
        walked = {k: self.visit(hints[k], v, _join(path, k)) for k, v in own.items()}
        return {**walked, "options": rest}

    def _dataclass(self, cls: type, value: Mapping[str, Any], path: str) -> dict[str, Any]:
        hints, out = hints_of(cls), {}
        for key, item in value.items():
            here = _join(path, str(key))
            if key in hints:
                out[key] = self.visit(hints[key], item, here)
            elif not self.nest:
                out[key] = item
            else:
                self.problems.append(self._unknown(cls, str(key), path))
        return out

    def _unknown(self, cls: type, key: str, path: str) -> Problem:
        names, here = list(hints_of(cls)), _join(path, key)
        elsewhere = keys_named(self.root, key) if self.root is not None else []
        near = nearest(key, names) or (elsewhere[0] if elsewhere else "")
        hint = f"; did you mean {near}?" if near else ""
        listed = ", ".join(names) if names else "none"
        return Problem(
            here, f"unknown key {here}{hint}", f"known keys of {path or 'a run'}: {listed}"
        )

    def _sequence(self, arms: tuple[Any, ...], value: Sequence[Any], path: str) -> Any:
        for arm in arms:
            of = get_args(arm)
            if get_origin(arm) is tuple and of[-1] is not Ellipsis:
                if len(of) == len(value):
                    pairs = enumerate(zip(of, value, strict=True))
                    return [self.visit(each, v, _join(path, str(i))) for i, (each, v) in pairs]
            elif of and get_origin(arm) is not typing.Literal:
                return [self.visit(of[0], v, _join(path, str(i))) for i, v in enumerate(value)]
        return list(value)

    def _number(self, arms: tuple[Any, ...], value: Any, path: str) -> None:
        numeric = int in arms or float in arms
        if isinstance(value, bool):
            if numeric and bool not in arms:
                self.problems.append(
                    Problem(path, f"{path}: expected a number, got {str(value).lower()}")
                )
        elif float in arms and str not in arms and _not_finite(value):
            self.problems.append(Problem(path, f"{path}: {value} is not a finite number"))


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _not_finite(value: Any) -> bool:
    try:
        return not math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False
