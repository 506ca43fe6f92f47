"""Where the rows of a packed batch lie, as attention needs it. It attends to nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
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
        lengths = np.diff(np.unique(row_starts))
        return cls.from_lengths([int(length) for length in lengths], device)

    @classmethod
    def from_lengths(cls, lengths: Sequence[int], device: torch.device) -> RowLayout:
        """The layout of rows one after the other, none of them empty."""
        offsets = np.cumsum([0, *lengths], dtype=np.int32)
        return cls(
            lengths=tuple(lengths),
            offsets_R=torch.from_numpy(offsets).to(device),
            longest=max(lengths),
        )
