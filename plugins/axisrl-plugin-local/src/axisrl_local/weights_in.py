"""Takes a trainer's weights into a model that serves, from one safetensors file.

Nothing is changed before everything was checked: a bad update leaves the old weights as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from axisrl.errors import WeightSyncError
from axisrl.ops.checksum import weights_checksum
from axisrl.types import WeightUpdate

TRANSPORTS = ("shared_memory", "disk")
_LISTED = 3


def load_update(model: Any, update: WeightUpdate) -> str:
    """Copy the update's tensors into the model and return the checksum of what it now holds.

    A tied weight is expected once, under the name ``named_parameters()`` gives it. Raises
    ``WeightSyncError`` naming the tensors that are missing, unexpected or of another shape or
    dtype, and when the file cannot be read.
    """
    if update.transport not in TRANSPORTS:
        raise WeightSyncError(
            f"local/engine cannot receive weights by {update.transport!r}",
            fix=f"let the trainer send by one of {', '.join(TRANSPORTS)}",
        )
    parameters: dict[str, Tensor] = dict(model.named_parameters())
    announced = {meta.name: meta.shape for meta in update.tensors}
    expected = {name: tuple(value.shape) for name, value in parameters.items()}
    _compare(f"weight update {update.version}", expected, announced)
    tensors = _read(update)
    described = {name: (tuple(value.shape), str(value.dtype)) for name, value in tensors.items()}
    wanted = {name: (tuple(value.shape), str(value.dtype)) for name, value in parameters.items()}
    _compare(update.location, wanted, described)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])
    return weights_checksum(parameters)


def _read(update: WeightUpdate) -> dict[str, Tensor]:
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
        _listing("lacks", expected.keys() - found.keys()),
        _listing("has unexpected", found.keys() - expected.keys()),
        _listing(
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


def _listing(what: str, names: Iterable[str]) -> str:
    listed = sorted(names)
    if not listed:
        return ""
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return f"{what} {', '.join(listed[:_LISTED])}{more}"
