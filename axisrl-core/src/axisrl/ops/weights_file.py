"""Reads the safetensors file of a weight update, once everything in it is what is expected.

It changes no model: a bad update is refused before anything was touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from axisrl.errors import WeightSyncError
from axisrl.types import WeightUpdate

_LISTED = 3
Described = tuple[tuple[int, ...], str]
"""Shape and type of a tensor."""


def described(tensor: Tensor) -> Described:
    """Of ``tensor``."""
    return tuple(tensor.shape), str(tensor.dtype)


def check_told(update: WeightUpdate, expected: Mapping[str, Described]) -> None:
    """Raise ``WeightSyncError`` unless the tensors it announces are those ``expected``, by name."""
    shapes = {name: shape for name, (shape, _) in expected.items()}
    told = {meta.name: meta.shape for meta in update.tensors}
    _compare(f"weight update {update.version}", shapes, told)


def check_arrived(
    update: WeightUpdate, expected: Mapping[str, Described], tensors: Mapping[str, Tensor]
) -> None:
    """Raise ``WeightSyncError`` unless ``tensors`` are those ``expected``; it names what is
    missing, unexpected or of another shape or type."""
    found = {name: described(tensor) for name, tensor in tensors.items()}
    _compare(update.location, expected, found)


def read(update: WeightUpdate) -> dict[str, Tensor]:
    """The tensors of the update's file. Raises ``WeightSyncError`` when it cannot be read."""
    try:
        with safe_open(update.location, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as problem:
        raise WeightSyncError(
            f"weight update {update.version}: {update.location} cannot be read: {problem}",
            fix="engine and trainer must see the same file; across machines use a shared disk",
        ) from problem


def _compare(where: str, expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    problems = [
        listing("lacks", expected.keys() - found.keys()),
        listing("has unexpected", found.keys() - expected.keys()),
        listing(
            "has other shapes or types of",
            [
                f"{name} ({found[name]} for {expected[name]})"
                for name in expected.keys() & found.keys()
                if found[name] != expected[name]
            ],
        ),
    ]
    if any(problems):
        raise WeightSyncError(
            f"{where} {' and '.join(filter(None, problems))}",
            fix="engine and trainer must load the same model in the same dtype",
        )


def listing(what: str, names: Iterable[str]) -> str:
    """``what`` and the first few names, or nothing where there are none."""
    listed = sorted(names)
    if not listed:
        return ""
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return f"{what} {', '.join(listed[:_LISTED])}{more}"
