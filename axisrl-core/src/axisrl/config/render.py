"""Writes configuration as commented YAML.

A resolved one with each value's origin, or the defaults of a config class with each field's help.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, cast

from axisrl.config.fields import fields_of
from axisrl.config.overrides import origin_of
from axisrl.config.shape import arms_of, hints_of, is_use
from axisrl.config.text import dump


def render(tree: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """Commented YAML; reading it back gives ``tree``. Comments are where each value was set."""
    return "".join(f"{line}\n" for line in _lines(tree, origins, "", ""))


def _lines(
    tree: Mapping[str, Any], origins: Mapping[str, str], path: str, indent: str
) -> Iterator[str]:
    for key, value in tree.items():
        here = f"{path}.{key}" if path else key
        label = f"{indent}{dump(key)}:"
        if isinstance(value, Mapping) and value:
            yield label
            yield from _lines(value, origins, here, f"{indent}  ")
            continue
        origin = origin_of(origins, here)
        comment = f"  # {origin}" if origin else ""
        if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            yield f"{label}{comment}"
            yield from (f"{indent}- {dump(item)}" for item in value)
        else:
            yield f"{label} {dump(value)}{comment}"


def render_defaults(cls: type) -> str:
    """Commented YAML of a config class: help above each key, required keys commented out."""
    return "".join(f"{line}\n" for line in _default_lines(cls, "", False))


def _default_lines(cls: type, indent: str, absent: bool) -> Iterator[str]:
    """``absent``: the section itself has no default, so its keys are comments."""
    hints = hints_of(cls)
    for info in fields_of(cls):
        mark = "# " if absent or info.required else ""
        if info.help:
            yield f"{indent}# {info.help}"
        inner = next(
            (a for a in arms_of(hints[info.name]) if is_dataclass(a) and not is_use(a)), None
        )
        if inner is not None:
            yield f"{indent}{mark}{info.name}:" + (f"  # {info.type}" if mark else "")
            hidden = bool(mark) or info.default is None
            yield from _default_lines(cast(type, inner), f"{indent}  ", hidden)
        elif info.required:
            yield f"{indent}# {info.name}:  # {info.type}, required"
        else:
            yield f"{indent}{mark}{info.name}: {dump(info.default)}  # {info.type}"
