"""Sums, means and minima over the trained tokens of each trajectory, given back to its tokens.

They see the rows of one packed batch: a loss or correction that calls them says ``level =
"trajectory"``, and all rows of a trajectory are then in that batch.

Masked tokens are never read and get 0. Pinned by ``tests/ops/test_trajectory.py``.

Shape suffixes: ``N`` tokens of one packed batch, ``J`` trajectories in it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from axisrl.ops.masked import zero_masked


def trajectory_sum(values_N: Tensor, mask_N: Tensor, trajectory_N: Tensor) -> Tensor:
    """(N,): at each trained token the sum over the trained tokens of its trajectory."""
    index_N, count = _index(trajectory_N)
    sums_J = values_N.new_zeros(count).index_add(0, index_N, zero_masked(values_N, mask_N))
    return zero_masked(sums_J[index_N], mask_N)


def trajectory_mean(values_N: Tensor, mask_N: Tensor, trajectory_N: Tensor) -> Tensor:
    """(N,): at each trained token the mean over the trained tokens of its trajectory."""
    lengths_N = trajectory_sum(torch.ones_like(values_N), mask_N, trajectory_N)
    return trajectory_sum(values_N, mask_N, trajectory_N) / lengths_N.clamp(min=1)


def trajectory_min(values_N: Tensor, mask_N: Tensor, trajectory_N: Tensor) -> Tensor:
    """(N,): at each trained token the minimum over the trained tokens of its trajectory."""
    index_N, count = _index(trajectory_N)
    ceiling_N = torch.where(mask_N, values_N, torch.full_like(values_N, torch.inf))
    lowest_J = values_N.new_full((count,), torch.inf).scatter_reduce(0, index_N, ceiling_N, "amin")
    return zero_masked(lowest_J[index_N], mask_N)


def _index(trajectory_N: Tensor) -> tuple[Tensor, int]:
    known_J, index_N = torch.unique(trajectory_N, return_inverse=True)
    return index_N, len(known_J)
