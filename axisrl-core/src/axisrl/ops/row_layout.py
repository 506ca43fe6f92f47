"""Where the rows of a packed batch lie, as attention needs it. It attends to nothing itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from axisrl.types import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Where the rows of a packed batch lie. Empty rows are left out."""

    lengths: tuple[int, ...]
    offsets_R: Tensor
    """int32, R + 1 entries, on the model's device."""
    longest: int

    @classmethod
    def of(cls, row_starts: IntArray, device: torch.device) -> RowLayout:
        """The layout of a batch whose row r is ``[row_starts[r], row_starts[r + 1])``."""
        starts = np.unique(row_starts)
        lengths = np.diff(starts)
        return cls(
            lengths=tuple(int(length) for length in lengths),
            offsets_R=torch.from_numpy(starts.astype(np.int32)).to(device),
            longest=int(lengths.max()),
        )
