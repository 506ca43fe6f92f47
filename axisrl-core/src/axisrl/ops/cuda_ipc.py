"""A tensor on a GPU, described in JSON so that another process of the machine can map its memory.

What torch pickles when a CUDA tensor goes through ``torch.multiprocessing``, without a pickle. A
description is good for one reader, once: torch counts them. The writer keeps the tensor alive until
the reader is done. Devices are named by UUID, since the two processes may number them differently.
"""

from __future__ import annotations

import base64
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing import reductions

_BYTES = ("handle", "ref_counter_handle", "event_handle")
_PLAIN = (
    "storage_size_bytes",
    "storage_offset_bytes",
    "ref_counter_offset",
    "event_sync_required",
)
_NAMES = (
    "handle",
    "storage_size_bytes",
    "storage_offset_bytes",
    "ref_counter_handle",
    "ref_counter_offset",
    "event_handle",
    "event_sync_required",
)
"""What ``_share_cuda_`` returns after the device, in its order."""


def describe(tensor: Tensor) -> dict[str, Any]:
    """JSON for a flat uint8 tensor on a CUDA device; to be called once a reader."""
    storage: Any = tensor.untyped_storage()
    _, *shared = storage._share_cuda_()
    values = dict(zip(_NAMES, shared, strict=True))
    described = {name: values[name] for name in _PLAIN}
    for name in _BYTES:
        described[name] = base64.b64encode(values[name]).decode("ascii")
    described["device"] = str(torch.cuda.get_device_properties(tensor.device).uuid)
    described["bytes"] = tensor.numel()
    described["offset"] = tensor.storage_offset()
    return described


def rebuild_arguments(described: dict[str, Any]) -> tuple[Any, ...]:
    """What torch's ``rebuild_cuda_tensor`` takes; the device is left as the UUID."""
    values = {name: base64.b64decode(described[name]) for name in _BYTES}
    return (
        Tensor,
        torch.Size([described["bytes"]]),
        (1,),
        described["offset"],
        torch.storage.TypedStorage,
        torch.uint8,
        described["device"],
        values["handle"],
        described["storage_size_bytes"],
        described["storage_offset_bytes"],
        False,
        values["ref_counter_handle"],
        described["ref_counter_offset"],
        values["event_handle"],
        described["event_sync_required"],
    )


def open_described(described: dict[str, Any]) -> Tensor:
    """Map the tensor into this process. Raises ``ValueError`` when its device is not seen here."""
    arguments = list(rebuild_arguments(described))
    uuids = [
        str(torch.cuda.get_device_properties(index).uuid)
        for index in range(torch.cuda.device_count())
    ]
    if described["device"] not in uuids:
        raise ValueError(f"GPU {described['device']} is not visible to this process")
    arguments[6] = uuids.index(described["device"])
    rebuild: Any = reductions.rebuild_cuda_tensor
    opened: Tensor = rebuild(*arguments)
    return opened
