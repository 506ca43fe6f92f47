"""A packed batch as tensors on the model's device, and the inputs a loss gets from it.

It does not run the model.

Shapes: ``N`` tokens, ``M`` trained tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from axisrl.errors import ConfigError
from axisrl.protocols.loss import LossInputs
from axisrl.types import PackedBatch
from axisrl_local.packed import RowLayout

_OPTIONAL = ("old_logprobs", "old_values", "returns")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """What one forward pass needs."""

    source: PackedBatch
    ids_N: Tensor
    positions_N: Tensor
    rows: RowLayout
    trained_M: Tensor
    """int64: where ``loss_mask`` is True."""
    labels_M: Tensor
    temperature_M: Tensor

    def column(self, name: str, dtype: torch.dtype = torch.float32) -> Tensor:
        """A column as a tensor (N,). Raises ``ConfigError`` when the batch lacks it."""
        return _column(self.source, name, self.ids_N.device, dtype)

    def full(self, values_M: Tensor) -> Tensor:
        """``values_M`` at the trained tokens of a (N,) tensor that is 0 elsewhere."""
        zeros_N = values_M.new_zeros(len(self.ids_N))
        return zeros_N.index_copy(0, self.trained_M, values_M)


def token_batch(batch: PackedBatch, device: torch.device) -> TokenBatch | None:
    """The batch on ``device``; None when it trains on nothing.

    Raises ``ConfigError`` when a trained token has no positive temperature: a greedy choice has no
    log-probability to learn from.
    """
    mask = np.asarray(batch.columns["loss_mask"], dtype=bool)
    if not mask.any():
        return None
    temperature = np.asarray(batch.columns["temperature"], dtype=np.float32)[mask]
    if not (np.isfinite(temperature) & (temperature > 0)).all():
        raise ConfigError(
            "a trained token was sampled at temperature 0 or at none",
            fix="set rollout.sampling.temperature above 0; greedy is for evaluation",
        )
    labels = np.asarray(batch.columns["labels"])[mask]
    return TokenBatch(
        source=batch,
        ids_N=_column(batch, "ids", device, torch.int64),
        positions_N=torch.as_tensor(batch.positions, dtype=torch.int64, device=device),
        rows=RowLayout.of(batch.row_starts, device),
        trained_M=torch.as_tensor(np.flatnonzero(mask), device=device),
        labels_M=torch.as_tensor(labels, dtype=torch.int64, device=device),
        temperature_M=torch.as_tensor(temperature, device=device),
    )


def loss_inputs(
    tokens: TokenBatch, logprobs_N: Tensor, entropy_N: Tensor, needs: frozenset[str]
) -> LossInputs:
    """The inputs of a loss that needs ``needs``.

    Missing "old_logprobs" are the detached current ones: the first update of a window.
    """
    columns = {
        f"{name}_N": tokens.column(name) for name in _OPTIONAL if name in tokens.source.columns
    }
    old_N = columns.pop("old_logprobs_N", logprobs_N.detach())
    return LossInputs(
        logprobs_N=logprobs_N,
        mask_N=tokens.column("loss_mask", torch.bool),
        advantages_N=tokens.column("advantages"),
        rollout_logprobs_N=tokens.column("rollout_logprobs"),
        trajectory_N=tokens.column("trajectory", torch.int64),
        old_logprobs_N=old_N if "old_logprobs" in needs else None,
        entropy_N=entropy_N if "entropy" in needs else None,
        **columns,
    )


def _column(batch: PackedBatch, name: str, device: torch.device, dtype: torch.dtype) -> Tensor:
    if name not in batch.columns:
        raise ConfigError(
            f"a packed batch has no column {name!r}",
            fix="the controller fills it; a packer keeps every column it is given",
        )
    return torch.as_tensor(np.asarray(batch.columns[name]), dtype=dtype, device=device)
