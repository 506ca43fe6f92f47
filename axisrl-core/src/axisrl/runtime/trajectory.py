"""Trajectory: a rollout as the trainer sees it, and how arrays over its tokens lie in its rows.

A trace with branches has several rows. An array over a trajectory has one entry a trained token in
the order they were *sampled*; :meth:`Trajectory.spread` lays it over the rows and
:meth:`Trajectory.gather` brings it back.

Everything is label-aligned: entry t of a row describes the prediction of its token t + 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axisrl.trace import Row, Trace
from axisrl.types import FloatArray, Handle, Sample


class Trajectory:
    """The rows of one rollout; ``samples`` have no advantages yet."""

    def __init__(self, trace: Trace, number: int, routing: Handle | None = None) -> None:
        """``number`` is the trajectory's own within its batch, ``routing`` names the experts of its
        tokens. A row ends at its last trained token: what was shown after it teaches nothing, and
        is in no budget."""
        rows = trace.rows()
        self.samples = [_sample(row, number, routing) for row in rows]
        nodes = np.concatenate([np.zeros(0, np.int32), *(row.nodes[row.trained] for row in rows)])
        self._order = np.argsort(nodes, kind="stable")
        """Place, among the trained tokens of all rows, of the i-th one sampled."""
        self._ends = np.cumsum([int(sample.loss_mask.sum()) for sample in self.samples])
        _, counts = np.unique(nodes, return_counts=True)
        self.turn_tokens: tuple[int, ...] = tuple(counts.tolist())
        """Trained tokens of each model call."""

    @property
    def tokens(self) -> int:
        """Trained tokens."""
        return len(self._order)

    def spread(self, values: NDArray[Any]) -> list[FloatArray]:
        """One array (T,) a row from an array () or (trained tokens,); 0 where not trained.

        Raises ``ValueError`` when the length is another.
        """
        if values.ndim and len(values) != self.tokens:
            raise ValueError(f"{len(values)} entries for {self.tokens} trained tokens")
        flat = np.zeros(self.tokens, np.float32)
        flat[self._order] = values
        rows = []
        for sample, part in zip(self.samples, np.split(flat, self._ends[:-1]), strict=True):
            row = np.zeros(len(sample.ids), np.float32)
            row[sample.loss_mask] = part
            rows.append(row)
        return rows

    def gather(self, rows: Sequence[NDArray[Any]]) -> FloatArray:
        """Inverse of :meth:`spread`: float32[trained tokens]."""
        pairs = zip(self.samples, rows, strict=True)
        flat = np.concatenate([np.asarray(row)[sample.loss_mask] for sample, row in pairs])
        return flat[self._order].astype(np.float32)

    def with_columns(self, **columns: NDArray[Any]) -> list[Sample]:
        """The samples with fields set from arrays over the trajectory."""
        spread = {name: self.spread(values) for name, values in columns.items()}
        rows: list[dict[str, Any]] = [
            {name: parts[at] for name, parts in spread.items()} for at in range(len(self.samples))
        ]
        pairs = zip(self.samples, rows, strict=True)
        return [dataclasses.replace(sample, **row) for sample, row in pairs]

    def closed(self) -> list[Sample]:
        """The samples, the row with the token sampled last longer by one position: that token as
        input, so that a value model can say what the state after it is worth."""
        last = int(np.searchsorted(self._ends, self._order[-1], side="right"))
        return [_closed(sample) if at == last else sample for at, sample in enumerate(self.samples)]

    def gather_closed(self, rows: Sequence[NDArray[Any]]) -> tuple[FloatArray, float]:
        """From arrays over the rows of :meth:`closed`: float32[trained tokens], and the entry at
        the position after the last."""
        sizes = [len(sample.ids) for sample in self.samples]
        inner = [np.asarray(row)[:size] for row, size in zip(rows, sizes, strict=True)]
        last = next(float(r[-1]) for r, size in zip(rows, sizes, strict=True) if len(r) > size)
        return self.gather(inner), last


def _sample(row: Row, trajectory: int, routing: Handle | None) -> Sample:
    last = int(np.flatnonzero(row.trained)[-1])
    seen, said = slice(0, last), slice(1, last + 1)
    mask = row.trained[said]
    return Sample(
        trajectory=trajectory,
        ids=row.ids[seen],
        labels=row.ids[said],
        loss_mask=mask,
        advantages=np.zeros(len(mask), np.float32),
        rollout_logprobs=row.logprobs[said],
        versions=row.versions[said],
        temperature=row.temperature[said],
        experts_at=None if routing is None else row.experts_at[seen],
        handles={} if routing is None else {"routing": routing},
    )


def _closed(sample: Sample) -> Sample:
    places = sample.experts_at
    return dataclasses.replace(
        sample,
        experts_at=None if places is None else np.append(places, np.int32(-1)),
        ids=np.append(sample.ids, sample.labels[-1]),
        labels=np.append(sample.labels, np.int32(0)),
        loss_mask=np.append(sample.loss_mask, True),
        advantages=np.append(sample.advantages, np.float32(0)),
        rollout_logprobs=np.append(sample.rollout_logprobs, np.float32(0)),
        versions=np.append(sample.versions, np.int32(-1)),
        temperature=np.append(sample.temperature, np.float32(1)),
    )
