"""The weights of a value head that a model folder does not have. It loads and computes nothing.

Weights are normal with standard deviation 1 / hidden size, the bias is 0. A body's last norm leaves
hidden states of about unit size, so values start within about 1 / sqrt(hidden size) of 0, and yet
the body has a gradient from the first step, which weights of 0 would deny it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def drawn_value_head(hidden_size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Weight (1, hidden size) and bias (1,), float32 on the CPU, the same for a seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, hidden_size, generator=generator) / hidden_size, torch.zeros(1)
