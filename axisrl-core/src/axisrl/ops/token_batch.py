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
from axisrl.ops.row_layout import RowLayout
from axisrl.protocols.loss import LossInputs
from axisrl.types import PackedBatch

_OPTIONAL = ("old_values", "returns")


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

    @property
    def temperature_M(self) -> Tensor:  # noqa: N802 - carries its shape
        """Of each trained token. Raises ``ConfigError`` when one is not positive: a greedy choice
        has no log-probability to learn from."""
        mask = np.asarray(self.source.columns["loss_mask"], dtype=bool)
        temperature = np.asarray(self.source.columns["temperature"], dtype=np.float32)[mask]
        if not (np.isfinite(temperature) & (temperature > 0)).all():
            raise ConfigError(
                "a trained token was sampled at temperature 0 or at none",
                fix="set rollout.sampling.temperature above 0; greedy is for evaluation",
            )
        return torch.as_tensor(temperature, device=self.ids_N.device)

    def column(self, name: str, dtype: torch.dtype = torch.float32) -> Tensor:
        """A column as a tensor (N,). Raises ``ConfigError`` when the batch lacks it."""
        return _column(self.source, name, self.ids_N.device, dtype)

    def full(self, values_M: Tensor) -> Tensor:
        """``values_M`` at the trained tokens of a (N,) tensor that is 0 elsewhere."""
        zeros_N = values_M.new_zeros(len(self.ids_N))
        return zeros_N.index_copy(0, self.trained_M, values_M)


def token_batch(batch: PackedBatch, device: torch.device) -> TokenBatch | None:
    """The batch on ``device``; None when it trains on nothing."""
    mask = np.asarray(batch.columns["loss_mask"], dtype=bool)
    if not mask.any():
        return None
    labels = np.asarray(batch.columns["labels"])[mask]
    return TokenBatch(
        source=batch,
        ids_N=_column(batch, "ids", device, torch.int64),
        positions_N=torch.as_tensor(batch.positions, dtype=torch.int64, device=device),
        rows=RowLayout.of(batch.row_starts, device),
        trained_M=torch.as_tensor(np.flatnonzero(mask), device=device),
        labels_M=torch.as_tensor(labels, dtype=torch.int64, device=device),
    )


def policy_inputs(
    tokens: TokenBatch, logprobs_N: Tensor, entropy_N: Tensor, needs: frozenset[str]
) -> LossInputs:
    """The inputs of a policy loss that needs ``needs``.

    Missing "old_logprobs" are the detached current ones: the first update of a window. Missing
    "reference_logprobs" raise ``ConfigError``: only the reference model can make them up.
    """
    old_N: Tensor | None = None
    if "old_logprobs" in needs:
        given = "old_logprobs" in tokens.source.columns
        old_N = tokens.column("old_logprobs") if given else logprobs_N.detach()
    reference = "reference_logprobs" in needs
    return LossInputs(
        logprobs_N=logprobs_N,
        old_logprobs_N=old_N,
        reference_logprobs_N=tokens.column("reference_logprobs") if reference else None,
        entropy_N=entropy_N if "entropy" in needs else None,
        **_given(tokens),
    )


def value_inputs(tokens: TokenBatch, values_N: Tensor) -> LossInputs:
    """The inputs of a value loss: a value model has no log-probabilities, so those are NaN."""
    return LossInputs(
        logprobs_N=torch.full_like(values_N, torch.nan), values_N=values_N, **_given(tokens)
    )


def _given(tokens: TokenBatch) -> dict[str, Tensor]:
    """What every loss gets from the batch's columns."""
    optional = {
        f"{name}_N": tokens.column(name) for name in _OPTIONAL if name in tokens.source.columns
    }
    return optional | {
        "mask_N": tokens.column("loss_mask", torch.bool),
        "advantages_N": tokens.column("advantages"),
        "rollout_logprobs_N": tokens.column("rollout_logprobs"),
        "trajectory_N": tokens.column("trajectory", torch.int64),
    }


def _column(batch: PackedBatch, name: str, device: torch.device, dtype: torch.dtype) -> Tensor:
    if name not in batch.columns:
        raise ConfigError(
            f"a packed batch has no column {name!r}",
            fix="the controller fills it; a packer keeps every column it is given",
        )
    return torch.as_tensor(np.asarray(batch.columns[name]), dtype=dtype, device=device)
