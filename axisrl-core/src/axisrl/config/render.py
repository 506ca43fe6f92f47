"""Writes a resolved configuration as YAML with each value's origin beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from axisrl.config.overrides import origin_of
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
        else:
            origin = origin_of(origins, here)
            yield f"{label} {dump(value)}" + (f"  # {origin}" if origin else "")
