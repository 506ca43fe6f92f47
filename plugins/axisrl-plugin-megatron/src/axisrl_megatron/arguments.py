"""Checks options against a dataclass of the Megatron installed: each name, and each value's type.

What only Megatron can judge (combinations) it says itself when the config is made.
"""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, PydanticSchemaGenerationError, TypeAdapter, ValidationError

from axisrl.errors import ConfigError

_STRICT = ConfigDict(arbitrary_types_allowed=True, strict=True)


def checked(given: Mapping[str, Any], target: type, path: str) -> dict[str, Any]:
    """``given`` as ``target`` takes it (names of enums become their members).

    Raises ``ConfigError`` for a name that ``target`` does not have, with the nearest one, and for
    a value of another type; ``path`` is where in the configuration they stand.
    """
    hints = typing.get_type_hints(target)
    known = {item.name for item in dataclasses.fields(target) if not item.name.startswith("_")}
    found = {}
    for name, value in given.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(
                f"{path}.{name}: the Megatron installed has no such option{hint}",
                fix=f"see the fields of {target.__module__}.{target.__qualname__}",
            )
        found[name] = _value(value, hints[name], f"{path}.{name}")
    return found


def _value(value: Any, hint: Any, path: str) -> Any:
    try:
        config = None if dataclasses.is_dataclass(hint) else _STRICT
        return TypeAdapter(hint, config=config).validate_python(value)
    except PydanticSchemaGenerationError:  # a type that only Megatron can judge
        return value
    except ValidationError as problem:
        told = problem.errors()[0]["msg"]
        raise ConfigError(
            f"{path}: {value!r} does not fit: {told}", fix=f"its type is {hint}"
        ) from problem
