"""``key.path=value`` arguments and the merging of layers, each leaf's origin kept.

Mappings merge, everything else is replaced. A layer that names another component with ``use``
starts that component's options afresh. It does not know types: :mod:`axisrl.config.shape`
expands short forms before layers come here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from axisrl.config.text import parse
from axisrl.errors import UsageError

Tree = dict[str, Any]


class Left(NamedTuple):
    """An option that was set for a component that is no longer there."""

    value: Any
    origin: str
    component: str


@dataclass(slots=True)
class Layers:
    """The merged tree so far, and where each of its leaves (dotted key) came from."""

    tree: Tree = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    left: dict[str, Left] = field(default_factory=dict)
    """Options, by their leaf, of components in whose places others were named."""
    _order: list[str] = field(default_factory=list)

    def rank(self, origin: str) -> int:
        """Position of a layer: the higher, the later it was laid on."""
        return self._order.index(origin)

    def add(self, tree: Mapping[str, Any], origin: str) -> None:
        """Lay a tree over what is there; ``origin`` names it in errors and in comments."""
        if origin not in self._order:
            self._order.append(origin)
        self._merge(self.tree, tree, "", origin)

    def _merge(self, lower: Tree, upper: Mapping[str, Any], path: str, origin: str) -> None:
        if "use" in lower and "use" in upper and lower["use"] != upper["use"]:
            self._leave(lower, path, str(lower["use"]))
            self._forget(path)
            lower.clear()
        for key, value in upper.items():
            here = f"{path}.{key}" if path else key
            if isinstance(value, Mapping) and value:
                if not isinstance(lower.get(key), dict):
                    self._forget(here)
                    lower[key] = {}
                self.origins.pop(here, None)
                self._merge(lower[key], value, here, origin)
            elif not (isinstance(value, Mapping) and isinstance(lower.get(key), dict)):
                self._forget(here)
                lower[key] = {} if isinstance(value, Mapping) else value
                self.origins[here] = origin

    def _leave(self, options: Mapping[str, Any], path: str, component: str) -> None:
        for key, value in options.items():
            here = f"{path}.{key}" if path else key
            if isinstance(value, Mapping) and value:
                self._leave(value, here, component)
            elif here in self.origins:
                self.left[here] = Left(value, self.origins[here], component)

    def _forget(self, path: str) -> None:
        prefix = f"{path}."
        for key in [k for k in self.origins if k == path or k.startswith(prefix)]:
            del self.origins[key]


def parse_override(argument: str) -> Tree:
    """``train.updates=20`` (or with leading dashes) as ``{"train": {"updates": 20}}``.

    The value is YAML. Raises ``UsageError`` for anything that is not ``key=value``.
    """
    key, equals, text = argument.removeprefix("--").partition("=")
    parts = key.split(".")
    if not equals or not all(parts) or any(part != part.strip() for part in parts):
        raise UsageError(
            f"cannot read {argument!r} as a setting",
            fix="write key.path=value, for example train.updates=20",
        )
    value = parse(text, f"the value of {key}")
    for part in reversed(parts):
        value = {part: value}
    return dict(value)


def origin_of(origins: Mapping[str, str], path: str) -> str:
    """Where a key, or the nearest key above it, came from; empty when nobody set it."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        origin = origins.get(".".join(parts[:end]))
        if origin is not None:
            return origin
    return ""


def differences(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> Sequence[str]:
    """``key: old -> new`` lines for every leaf that is not the same in both trees."""
    lines: list[str] = []
    for key in [*old, *(k for k in new if k not in old)]:
        here = f"{path}.{key}" if path else key
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines.extend(differences(before, after, here))
        elif key not in old or key not in new or before != after:
            lines.append(f"{here}: {_side(old, key)} -> {_side(new, key)}")
    return lines


def _side(tree: Mapping[str, Any], key: str) -> str:
    return repr(tree[key]) if key in tree else "(absent)"
