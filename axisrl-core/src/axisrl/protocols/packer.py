"""Packer: lays samples of unequal length into few batches without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from axisrl.types import PackBudget, PackedBatch, Sample


class Packer(Protocol):
    """Deterministic. Every token of every sample is in exactly one batch; each rank gets as many
    batches as the others."""

    def pack(self, samples: Sequence[Sample], budget: PackBudget) -> Sequence[PackedBatch]:
        """Raises ``ConfigError`` when one sample alone is over the budget, naming both numbers.

        Batches are ordered by rank. With more ranks than rows some batches are empty (no rows, no
        tokens).
        """
        ...

    def unpack(self, packed: PackedBatch, per_token: NDArray[Any]) -> Sequence[NDArray[Any]]:
        """Split an array (N,) back into one array (T,) a row, in the order of ``packed.rows``."""
        ...
