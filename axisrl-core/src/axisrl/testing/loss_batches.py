"""Small float64 batches for trying a loss, and a model of 39 parameters whose gradient can be
checked by hand. Nothing here knows what a good loss value is.

A loss that needs "values" is given what a value model has: values, old values and returns, and NaN
for every log-probability of the current weights.

Shapes: ``T`` tokens of one row, ``N`` tokens of one batch, ``V`` vocabulary, ``H`` hidden size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from axisrl.protocols.loss import Loss, LossInputs
from axisrl.testing.cases import LossPoint

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_V, _H = 6, 3
PARAMETERS = 2 * _V * _H + _H
"""Of :class:`TinyPolicy`; the last ones are its value head."""
HEAD = slice(2 * _V * _H, PARAMETERS)
_STEP = 1e-6
_FLOATS = (
    "advantages",
    "current",
    "rollout",
    "old",
    "reference",
    "entropy",
    "values",
    "old_values",
    "returns",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a batch; all arrays (T,), float64 but for ``ids``, ``labels`` and ``mask``."""

    trajectory: int
    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    mask: NDArray[np.bool_]
    weights: NDArray[np.float64]
    advantages: NDArray[np.float64]
    current: NDArray[np.float64]
    """Log-probabilities where they are given instead of computed by :class:`TinyPolicy`."""
    rollout: NDArray[np.float64]
    old: NDArray[np.float64]
    reference: NDArray[np.float64]
    entropy: NDArray[np.float64]
    values: NDArray[np.float64]
    old_values: NDArray[np.float64]
    returns: NDArray[np.float64]

    def poisoned(self, poison: float) -> Row:
        """``poison`` at every masked position of every array."""
        changed: dict[str, Any] = {
            name: np.where(self.mask, getattr(self, name), poison) for name in _FLOATS
        }
        return dataclasses.replace(self, **changed)

    def on_policy(self) -> Row:
        """All three log-probabilities equal."""
        return dataclasses.replace(self, rollout=self.current.copy(), old=self.current.copy())

    def shifted(self, by: float) -> Row:
        """The current log-probabilities moved away from the other two, and the values from the old
        ones."""
        moved = dataclasses.replace(self.on_policy(), values=self.old_values + by)
        return dataclasses.replace(moved, current=self.current + by)

    def unsampled(self) -> Row:
        """NaN for everything that only a sampled text has."""
        nothing = np.full(len(self.ids), np.nan)
        return dataclasses.replace(
            self, advantages=nothing, rollout=nothing, old=nothing, reference=nothing
        )

    def padded(self, tokens: int) -> Row:
        """``tokens`` masked tokens of garbage at the end."""
        return _join(self, garbage_row(tokens))

    def split(self) -> tuple[Row, Row]:
        """Two rows of the same trajectory."""
        middle, arrays = len(self.ids) // 2, _arrays(self)
        head = {name: array[:middle] for name, array in arrays.items()}
        tail = {name: array[middle:] for name, array in arrays.items()}
        return Row(trajectory=self.trajectory, **head), Row(trajectory=self.trajectory, **tail)


def random_rows(seed: int, count: int = 6) -> list[Row]:
    """``count`` rows, each a trajectory of 2 to 7 tokens with at least one trained."""
    rng = np.random.default_rng([20, seed])
    return [_random_row(rng, trajectory) for trajectory in range(count)]


def garbage_row(tokens: int) -> Row:
    """A wholly masked row of a trajectory of its own."""
    row = _random_row(np.random.default_rng([21, tokens]), 1000 + tokens, tokens)
    hidden = np.zeros(tokens, np.bool_)
    return dataclasses.replace(row, mask=hidden, weights=np.zeros(tokens)).poisoned(1e3)


def leaves(
    rows: Sequence[Row], needs: frozenset[str], dtype: torch.dtype | None = None
) -> LossInputs:
    """The rows as one batch whose log-probabilities, entropy and values are leaves."""
    import torch

    def leaf(name: str) -> Tensor:
        return _tensor(rows, name, dtype or torch.float64).requires_grad_()

    current_N = leaf("current")
    if "values" in needs:
        current_N = torch.full_like(current_N, torch.nan).requires_grad_()
    return _inputs(
        rows,
        needs,
        logprobs_N=current_N,
        entropy_N=leaf("entropy"),
        values_N=leaf("values"),
    )


def point_inputs(point: LossPoint, needs: frozenset[str]) -> LossInputs:
    """One trained token whose base log-probabilities are 0."""
    row = _random_row(np.random.default_rng(22), 0, 1)
    known = dataclasses.replace(
        row,
        mask=np.ones(1, np.bool_),
        advantages=np.full(1, point.advantage),
        current=np.full(1, point.log_ratio),
        rollout=np.zeros(1),
        old=np.zeros(1),
    )
    return leaves([known], needs)


class TinyPolicy:
    """``softmax(tanh(E[id]) W)`` and a value head ``tanh(E[id]) u``; float64, made from a seed."""

    def __init__(self) -> None:
        rng = np.random.default_rng(23)
        self.parameters: NDArray[np.float64] = rng.normal(size=PARAMETERS)

    def value(self, loss: Loss, batches: Sequence[Sequence[Row]]) -> float:
        """Sum over all tokens of numerator x weight, as a trainer forms it."""
        return float(self._total(loss, batches, self.parameters)[0].detach())

    def gradient(self, loss: Loss, batches: Sequence[Sequence[Row]]) -> NDArray[np.float64]:
        """Its gradient by the parameters, from autograd."""
        total, parameters = self._total(loss, batches, self.parameters)
        if total.requires_grad:
            total.backward()  # type: ignore[no-untyped-call]
        gradient = parameters.grad
        return np.zeros(len(self.parameters)) if gradient is None else gradient.numpy()

    def finite_differences(
        self, loss: Loss, batches: Sequence[Sequence[Row]]
    ) -> NDArray[np.float64]:
        """The same from central differences."""
        slopes = np.zeros(len(self.parameters))
        for i in range(len(slopes)):
            ends = []
            for sign in (1, -1):
                moved = self.parameters.copy()
                moved[i] += sign * _STEP
                ends.append(float(self._total(loss, batches, moved)[0].detach()))
            slopes[i] = (ends[0] - ends[1]) / (2 * _STEP)
        return slopes

    def _total(
        self, loss: Loss, batches: Sequence[Sequence[Row]], parameters: NDArray[np.float64]
    ) -> tuple[Tensor, Tensor]:
        import torch

        leaf = torch.tensor(parameters, requires_grad=True)
        total = torch.zeros((), dtype=torch.float64)
        for rows in batches:
            per_token_N = loss(self._inputs(rows, loss.needs, leaf)).per_token_N
            total = total + (per_token_N * _tensor(rows, "weights", torch.float64)).sum()
        return total, leaf

    def _inputs(self, rows: Sequence[Row], needs: frozenset[str], leaf: Tensor) -> LossInputs:
        import torch

        embed_VH, head_HV = leaf[: _V * _H].view(_V, _H), leaf[_V * _H : 2 * _V * _H].view(_H, _V)
        hidden_NH = torch.tanh(embed_VH[_tensor(rows, "ids", torch.int64)])
        logp_NV = torch.log_softmax(hidden_NH @ head_HV, dim=-1)
        labels_N = _tensor(rows, "labels", torch.int64)
        current_N = logp_NV.gather(1, labels_N[:, None])[:, 0]
        return _inputs(
            rows,
            needs,
            logprobs_N=torch.full_like(current_N, torch.nan) if "values" in needs else current_N,
            entropy_N=-(logp_NV.exp() * logp_NV).sum(dim=-1),
            values_N=hidden_NH @ leaf[HEAD],
        )


def _inputs(
    rows: Sequence[Row],
    needs: frozenset[str],
    *,
    logprobs_N: Tensor,
    entropy_N: Tensor,
    values_N: Tensor,
) -> LossInputs:
    """What a loss with these needs is given, and nothing else."""
    import torch

    def floats(name: str) -> Tensor:
        return _tensor(rows, name, logprobs_N.dtype)

    trajectories = [np.full(len(row.ids), row.trajectory) for row in rows]
    values = "values" in needs
    return LossInputs(
        logprobs_N=logprobs_N,
        mask_N=_tensor(rows, "mask", torch.bool),
        advantages_N=floats("advantages"),
        rollout_logprobs_N=floats("rollout"),
        trajectory_N=torch.tensor(np.concatenate([*trajectories, np.zeros(0)]), dtype=torch.int64),
        old_logprobs_N=floats("old") if "old_logprobs" in needs else None,
        reference_logprobs_N=floats("reference") if "reference_logprobs" in needs else None,
        entropy_N=entropy_N if "entropy" in needs else None,
        values_N=values_N if values else None,
        old_values_N=floats("old_values") if values else None,
        returns_N=floats("returns") if values else None,
    )


def _tensor(rows: Sequence[Row], name: str, dtype: torch.dtype) -> Tensor:
    import torch

    arrays = [getattr(row, name) for row in rows]
    return torch.tensor(np.concatenate([*arrays, np.zeros(0)]), dtype=dtype)


def _arrays(row: Row) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(row) if field.name != "trajectory"]
    return {name: getattr(row, name) for name in names}


def _join(row: Row, tail: Row) -> Row:
    ends = _arrays(tail)
    joined = {name: np.concatenate([array, ends[name]]) for name, array in _arrays(row).items()}
    return Row(trajectory=row.trajectory, **joined)


def _random_row(rng: np.random.Generator, trajectory: int, tokens: int | None = None) -> Row:
    length = int(rng.integers(2, 8)) if tokens is None else tokens
    mask = rng.random(length) < 0.6
    mask[rng.integers(length)] = True
    current = -rng.gamma(2.0, 0.6, length) - 0.05
    return Row(
        trajectory=trajectory,
        ids=rng.integers(0, _V, length),
        labels=rng.integers(0, _V, length),
        mask=mask,
        weights=rng.uniform(0.05, 0.3, length) * mask,
        advantages=rng.normal(size=length),
        current=current,
        rollout=current + rng.normal(0, 0.3, length),
        old=current + rng.normal(0, 0.3, length),
        reference=current + rng.normal(0, 0.3, length),
        entropy=rng.uniform(0.1, 1.5, length),
        values=rng.normal(size=length),
        old_values=rng.normal(size=length),
        returns=rng.normal(size=length),
    )
