"""Takes the tensors of a weight update, from a file or a process group, once they are what is
expected. It changes no model: a bad update is refused before anything was touched.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import torch
from torch import Tensor

from axisrl.ops.broadcast.receiver import Party, Receiver
from axisrl.ops.flat_buckets import views
from axisrl.ops.weights_file import Described, check_arrived, check_told, read
from axisrl.types import WeightUpdate

TRANSPORTS = ("shared_memory", "disk", "nccl")


class WeightTaker:
    """One receiver, with a name of its own that begins with ``kind``."""

    def __init__(self, kind: str) -> None:
        self._name = f"{kind}-{uuid.uuid4().hex[:8]}"
        self._group = Receiver()

    def take(
        self, update: WeightUpdate, device: torch.device, expected: Mapping[str, Described]
    ) -> dict[str, Tensor]:
        """The update's tensors by name; on ``device`` where they came over a process group.

        Raises ``WeightSyncError`` naming what is missing, unexpected or of another shape or type.
        """
        check_told(update, expected)
        if update.transport == "nccl":
            party = Party(self._name, receivers=update.receivers)
            buckets = self._group.receive(update.location, party, device)
            tensors = {name: value for bucket in buckets for name, value in views(bucket).items()}
        else:
            tensors = read(update)
        check_arrived(update, expected, tensors)
        return tensors
