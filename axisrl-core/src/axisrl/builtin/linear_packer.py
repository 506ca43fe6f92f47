"""``core/linear``: rows end to end in few batches, no padding, no shared prefixes.

1. Rows of one trajectory form a unit, so that what is computed over a trajectory sees all of it.
   Only a trajectory over the budget is split, row by row; with ``whole_trajectories`` it gets a
   batch of its own.
2. First-fit-decreasing over the units gives the number of batches, rounded up to a multiple of the
   ranks. The units are then spread, largest first, each to the batch with the fewest tokens; where
   that would break the budget the first-fit batches stay.
3. Each rank gets the same number of batches, the heaviest going to the rank with the fewest tokens.

Every tie is broken by position, so the same samples give the same batches. It does not touch
values.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axisrl.config.base import NoConfig
from axisrl.errors import ConfigError
from axisrl.types import BuildContext, IntArray, PackBudget, PackedBatch, Sample

_REQUIRED = {
    "ids": np.int32,
    "labels": np.int32,
    "loss_mask": np.bool_,
    "advantages": np.float32,
    "rollout_logprobs": np.float32,
    "versions": np.int32,
    "temperature": np.float32,
}
_OPTIONAL = {
    "weights": np.float32,
    "old_logprobs": np.float32,
    "reference_logprobs": np.float32,
    "returns": np.float32,
    "old_values": np.float32,
    "experts_at": np.int32,
}

_ABSENT = {"experts_at": -1}
"""What a sample has of an optional column that others have: rollouts that were played before
something was kept may meet those that were played after."""


class _Unit(NamedTuple):
    tokens: int
    rows: tuple[int, ...]


class LinearPacker:
    """See the module's docstring."""

    def __init__(self, config: NoConfig, context: BuildContext) -> None:
        pass

    def pack(self, samples: Sequence[Sample], budget: PackBudget) -> Sequence[PackedBatch]:
        """See :meth:`axisrl.protocols.Packer.pack`.

        Raises ``ValueError`` when a sample's arrays differ in length, or when an optional column
        other than ``experts_at`` is set on some samples only.
        """
        columns = _columns(samples)
        sizes = [len(sample.ids) for sample in samples]
        _check_sizes(sizes, budget)
        bins = _fill(_units(samples, sizes, budget), budget)
        return [
            _batch(rank, sorted(rows), samples, columns)
            for rank, rows in _assign(bins, sizes, budget.ranks)
        ]

    def unpack(self, packed: PackedBatch, per_token: NDArray[Any]) -> Sequence[NDArray[Any]]:
        """See :meth:`axisrl.protocols.Packer.unpack`."""
        if per_token.shape[:1] != (packed.tokens,):
            raise ValueError(
                f"cannot unpack {per_token.shape} entries from a batch of {packed.tokens} tokens"
            )
        starts = packed.row_starts.tolist()
        return [per_token[start:stop] for start, stop in itertools.pairwise(starts)]


def _columns(samples: Sequence[Sample]) -> dict[str, Any]:
    """Name -> dtype (None: as given) of the per-token columns; checks that the samples agree."""
    columns: dict[str, Any] = dict(_REQUIRED)
    for name, dtype in _OPTIONAL.items():
        unset = [at for at, sample in enumerate(samples) if getattr(sample, name) is None]
        if (samples and not unset) or (len(unset) < len(samples) and name in _ABSENT):
            columns[name] = dtype
        elif len(unset) < len(samples):
            raise ValueError(f"{name} is set on some samples and not on sample {unset[0]}")
    for at, sample in enumerate(samples):
        for name in columns:
            shape = _values(sample, name).shape
            if shape != sample.ids.shape or len(shape) != 1:
                raise ValueError(f"sample {at}: {name} is {shape}, ids are {sample.ids.shape}")
    return columns


def _values(sample: Sample, name: str) -> NDArray[Any]:
    given: NDArray[Any] | None = getattr(sample, name)
    return np.full(sample.ids.shape, _ABSENT[name]) if given is None else given


def _check_sizes(sizes: Sequence[int], budget: PackBudget) -> None:
    for at, size in enumerate(sizes):
        if size > budget.max_tokens:
            raise ConfigError(
                f"sample {at} has {size} tokens, over train.max_tokens_per_batch "
                f"{budget.max_tokens}",
                fix=f"set train.max_tokens_per_batch to {size} or more, or lower "
                "rollout.max_context",
            )


def _units(samples: Sequence[Sample], sizes: Sequence[int], budget: PackBudget) -> list[_Unit]:
    """Largest first, then by first row."""
    rows_of: dict[int, list[int]] = {}
    for at, sample in enumerate(samples):
        rows_of.setdefault(sample.trajectory, []).append(at)
    units = []
    for rows in rows_of.values():
        tokens = sum(sizes[row] for row in rows)
        if tokens <= budget.max_tokens or budget.whole_trajectories:
            units.append(_Unit(tokens, tuple(rows)))
        else:
            units.extend(_Unit(sizes[row], (row,)) for row in rows)
    return sorted(units, key=lambda unit: (-unit.tokens, unit.rows[0]))


def _fill(units: Sequence[_Unit], budget: PackBudget) -> list[list[int]]:
    """Rows of each batch; a multiple of ``ranks`` batches, at least one a rank."""
    bins: list[list[int]] = []
    room: list[int] = []
    for unit in units:
        at = next((at for at, free in enumerate(room) if free >= unit.tokens), len(bins))
        if at == len(bins):
            bins.append([])
            room.append(budget.max_tokens)
        bins[at].extend(unit.rows)
        room[at] -= unit.tokens
    count = max(1, -(-len(bins) // budget.ranks)) * budget.ranks
    first_fit = bins + [[] for _ in range(count - len(bins))]
    return _spread(units, count, budget.max_tokens) or first_fit


def _spread(units: Sequence[_Unit], count: int, max_tokens: int) -> list[list[int]] | None:
    """Each unit to the batch with the fewest tokens; None when that breaks the budget."""
    bins: list[list[int]] = [[] for _ in range(count)]
    tokens = [0] * count
    for unit in units:
        at = min(range(count), key=tokens.__getitem__)
        bins[at].extend(unit.rows)
        tokens[at] += unit.tokens
        if tokens[at] > max_tokens:
            return None
    return bins


def _assign(
    bins: Sequence[list[int]], sizes: Sequence[int], ranks: int
) -> list[tuple[int, list[int]]]:
    """(rank, rows) ordered by rank, equally many a rank."""
    load = [0] * ranks
    given: list[list[list[int]]] = [[] for _ in range(ranks)]
    share = len(bins) // ranks
    for rows in sorted(bins, key=lambda rows: -sum(sizes[row] for row in rows)):
        open_ranks = [rank for rank in range(ranks) if len(given[rank]) < share]
        rank = min(open_ranks, key=load.__getitem__)
        given[rank].append(rows)
        load[rank] += sum(sizes[row] for row in rows)
    return [(rank, rows) for rank, mine in enumerate(given) for rows in mine]


def _batch(
    rank: int, rows: Sequence[int], samples: Sequence[Sample], columns: dict[str, Any]
) -> PackedBatch:
    chosen = [samples[row] for row in rows]
    sizes = [len(sample.ids) for sample in chosen]
    packed: dict[str, NDArray[Any]] = {
        name: _join([_values(sample, name) for sample in chosen], dtype)
        for name, dtype in columns.items()
    }
    trajectories = np.array([sample.trajectory for sample in chosen], np.int32)
    packed["trajectory"] = np.repeat(trajectories, sizes)
    handled = [sample.handles for sample in chosen]
    positions = _join([np.arange(size, dtype=np.int32) for size in sizes], np.int32)
    return PackedBatch(
        rank=rank,
        rows=tuple(rows),
        row_starts=_starts(sizes),
        positions=positions,
        columns=packed,
        handles=tuple(handled) if any(handled) else (),
    )


def _starts(sizes: Sequence[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int32)]).astype(np.int32)


def _join(arrays: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *arrays]).astype(dtype, copy=False)
