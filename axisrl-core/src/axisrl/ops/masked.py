"""Masked tensor operations whose masked positions may hold anything: NaN, infinities, 1e4.

They do not divide by denominators of a batch: that is the trainer's (:mod:`axisrl.protocols.loss`).

Formula: select before computing, ``f(where(m, x, 0))``, never ``m * f(x)``; 0 x NaN is NaN, in the
backward pass as well. Pinned by ``tests/ops/test_masked.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

import torch
from torch import Tensor


def zero_masked(values_N: Tensor, mask_N: Tensor) -> Tensor:
    """``values_N`` (N,) with exactly 0, value and gradient, where ``mask_N`` (N,) bool is False."""
    return torch.where(mask_N, values_N, torch.zeros_like(values_N))


def masked_mean(values_N: Tensor, mask_N: Tensor) -> Tensor:
    """Mean over the kept entries, shape (); 0 with zero gradient when nothing is kept."""
    return zero_masked(values_N, mask_N).sum() / mask_N.sum().clamp(min=1)
