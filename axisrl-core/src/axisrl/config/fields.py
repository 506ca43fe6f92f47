"""Reads the fields of a config dataclass for people: type, default and the docstring under each.

Source is parsed, never run; a class whose source cannot be read has no help texts. No pydantic.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Literal, get_origin

from axisrl.config.shape import hints_of, plain


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """One option of a component. ``default`` is plain YAML data, None when ``required``."""

    name: str
    type: str
    default: Any
    required: bool
    help: str


def fields_of(cls: type) -> tuple[FieldInfo, ...]:
    """The options of a config dataclass in order."""
    helps: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        helps.update(_helps(base))
    hints = hints_of(cls)
    return tuple(
        FieldInfo(
            name=item.name,
            type=_type_text(item, hints[item.name]),
            default=_default(item),
            required=item.default is MISSING and item.default_factory is MISSING,
            help=helps.get(item.name, ""),
        )
        for item in fields(cls)
    )


def _type_text(item: Field[Any], hint: Any) -> str:
    if get_origin(hint) is Literal:  # whatever name it goes by: the choices are what a reader needs
        return inspect.formatannotation(hint).removeprefix("typing.")
    return item.type if isinstance(item.type, str) else inspect.formatannotation(item.type)


def _default(item: Field[Any]) -> Any:
    if item.default is not MISSING:
        return plain(item.default)
    return plain(item.default_factory()) if item.default_factory is not MISSING else None


def _helps(cls: type) -> dict[str, str]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError, SyntaxError):
        return {}
    helps: dict[str, str] = {}
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for statement, after in itertools.pairwise(statements):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            helps[statement.target.id] = " ".join(after.value.value.split())
    return helps
