"""Turns plain data into a config dataclass, or one clear error that names the key and the fix.

pydantic does the types and is imported at the first call, so a config module costs nothing.
It does not know components or plugins: that is :mod:`axisrl.config.resolve`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from axisrl.config.fields import FieldInfo, fields_of
from axisrl.config.problems import Problem, nearest, raise_problems
from axisrl.config.schema import Use
from axisrl.config.shape import arms_of, hints_of, is_use, prepare
from axisrl.config.use import ServiceUse

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import ErrorDetails

__all__ = ["FieldInfo", "fields_of", "schema_of", "validate"]

T = TypeVar("T")

_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "tuple": "a list",
    "list": "a list",
    "dict": "keys and values",
    "dataclass": "keys and values",
    "path": "a path",
}


def validate(
    cls: type[T],
    options: Mapping[str, Any],
    *,
    path: str = "",
    origins: Mapping[str, str] | None = None,
) -> T:
    """An instance of the dataclass ``cls``.

    ``path`` is the dotted key that ``options`` stand under, ``origins`` where each key was set.
    Raises ``ConfigError`` for unknown keys (with the nearest known one), wrong types, numbers that
    are not finite, missing keys, and whatever ``__post_init__`` refuses with ``ValueError``.
    """
    from pydantic import ValidationError

    prepared, problems = prepare(cls, options, path)
    try:
        instance = _adapter(cast(Any, cls)).validate_python(prepared)
    except ValidationError as error:
        seen = {problem.path for problem in problems}
        found = [_translate(detail, prepared, path) for detail in _details(error)]
        problems.extend(problem for problem in found if problem.path not in seen)
        raise_problems(problems, origins or {})
        raise
    raise_problems(problems, origins or {})
    return cast(T, instance)


def schema_of(cls: type) -> dict[str, Any]:
    """JSON schema of a config dataclass as it is written in YAML, help texts included."""
    schema = _adapter(cls).json_schema()
    definitions = schema.get("$defs", {})
    for known in _dataclasses(cls):
        part = schema if known is cls else definitions.get(known.__name__, {})
        for info in fields_of(known):
            if info.help and info.name in part.get("properties", {}):
                part["properties"][info.name]["description"] = info.help
        if known is not cls and hasattr(known, "short_form"):
            definitions[known.__name__] = {"anyOf": [{"type": "string"}, part]}
    for use in (Use, ServiceUse):
        if use.__name__ in definitions:
            definitions[use.__name__] = _use_schema(use, definitions[use.__name__])
    return schema


def _use_schema(use: type[Use], part: Mapping[str, Any]) -> dict[str, Any]:
    """A component id, or an object that holds the component's options beside its own keys."""
    own = {info.name: info.help for info in fields_of(use) if info.name != "options"}
    told = {name: {"description": text} if text else {} for name, text in own.items()}
    properties = {name: {**part["properties"][name], **told[name]} for name in own}
    for value in properties.values():
        value.pop("title", None)
    return {
        "description": "A component id, or `use: id` with the component's own options beside it.",
        "anyOf": [
            {"type": "string"},
            {
                "type": "object",
                "properties": properties,
                "required": ["use"],
                "additionalProperties": True,
            },
        ],
    }


@functools.cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


def _dataclasses(cls: type) -> list[type]:
    found, queue = [cls], [cls]
    while queue:
        for hint in hints_of(queue.pop()).values():
            for arm in _inner(hint):
                if is_dataclass(arm) and not is_use(arm) and arm not in found:
                    found.append(cast(type, arm))
                    queue.append(cast(type, arm))
    return found


def _inner(hint: Any) -> list[Any]:
    parts = []
    for arm in arms_of(hint):
        parts.append(arm)
        for inner in getattr(arm, "__args__", ()):
            parts.extend(_inner(inner))
    return parts


def _details(error: ValidationError) -> list[ErrorDetails]:
    return [
        detail
        for detail in error.errors(include_url=False)
        if detail["type"] != "unexpected_keyword_argument"
    ]


def _translate(detail: ErrorDetails, prepared: Any, path: str) -> Problem:
    kind, value = detail["type"], detail["input"]
    here = _key(detail["loc"], prepared, path, missing=kind == "missing")
    name = here or "the configuration"
    if kind == "missing":
        return Problem(here, f"{name} is required", f"set {name}")
    if kind in ("value_error", "assertion_error"):
        reason = str(detail["ctx"]["error"])
        return Problem(here, f"{here}: {reason}" if here else reason)
    if kind in ("literal_error", "enum"):
        return _choice(here, value, detail["ctx"]["expected"])
    expected = _EXPECTED.get(kind.split("_")[0])
    if expected is None:
        return Problem(here, f"{name}: {detail['msg']}, got {value!r}")
    fix = ""
    if expected == "a list":
        fix = f"a list is given whole: {name}=[first, second]"
    if expected == "a text" and not isinstance(value, dict | list):
        fix = f'quote it: {name}=\'"{value}"\' on the command line, "{value}" in YAML'
    return Problem(here, f"{name}: expected {expected}, got {value!r}", fix)


def _choice(here: str, value: Any, expected: str) -> Problem:
    words = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    near = nearest(str(value), words)
    hint = f"; did you mean {near}?" if near else ""
    return Problem(here, f"{here}: {value!r} is not one of {', '.join(words)}{hint}")


def _key(loc: tuple[int | str, ...], prepared: Any, path: str, *, missing: bool) -> str:
    """The dotted key of an error; pydantic's names of union arms and of ``options`` drop out."""
    parts, at = ([path] if path else []), prepared
    for index, part in enumerate(loc):
        inside = (isinstance(at, dict) and part in at) or (
            isinstance(at, list) and isinstance(part, int) and part < len(at)
        )
        if inside:
            at = at[part]
        if inside or (missing and index == len(loc) - 1):
            parts.append(str(part))
    return ".".join(parts)
