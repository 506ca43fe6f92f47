"""From traces to trainer rows: label alignment, advantages, and the weights that hold every
denominator.

``weights`` are what make a loss independent of how it is computed: token t of a global batch
carries ``1 / denominator`` of its aggregation, counted over the whole batch before any micro-batch
exists (Numerics in the design; DAPO arXiv 2503.14476 for token mean, Dr.GRPO arXiv 2503.20783 for
the fixed norm).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from axisrl.trace import Row, Trace
from axisrl.types import Aggregation, FloatArray, Sample


def samples_of(trace: Trace, advantage: FloatArray, trajectory: int) -> list[Sample]:
    """The rows of one rollout, each shifted by one so that entry t predicts token t + 1.

    A row ends at its last trained token: what was shown after it teaches nothing, and is in no
    budget.
    ``advantage`` is () or (trained tokens of all rows,). Raises ``ValueError`` when the lengths
    differ.
    """
    rows = trace.rows()
    counts = [int(row.trained.sum()) for row in rows]
    if advantage.ndim and len(advantage) != sum(counts):
        raise ValueError(f"{len(advantage)} advantages for {sum(counts)} trained tokens")
    per_token = np.broadcast_to(advantage, (sum(counts),))
    parts = np.split(per_token, np.cumsum(counts)[:-1]) if rows else []
    return [_sample(row, part, trajectory) for row, part in zip(rows, parts, strict=True)]


def _sample(row: Row, advantage: FloatArray, trajectory: int) -> Sample:
    last = int(np.flatnonzero(row.trained)[-1])
    seen, said = slice(0, last), slice(1, last + 1)
    mask = row.trained[said]
    advantages = np.zeros(len(mask), np.float32)
    advantages[mask] = advantage
    return Sample(
        trajectory=trajectory,
        ids=row.ids[seen],
        labels=row.ids[said],
        loss_mask=mask,
        advantages=advantages,
        rollout_logprobs=row.logprobs[said],
        versions=row.versions[said],
        temperature=row.temperature[said],
    )


def with_weights(
    samples: Sequence[Sample], aggregation: Aggregation, sequence_norm: int
) -> list[Sample]:
    """The samples of one global batch with ``weights`` (T,) set: they sum to the loss's own
    normaliser.

    token_mean: 1 / trained tokens. sequence_mean_token_mean: 1 / (trajectories x trained tokens of
    the trajectory).
    sequence_mean_token_sum_norm: 1 / (trajectories x ``sequence_norm``).
    """
    lengths: dict[int, int] = {}
    for sample in samples:
        trained = int(sample.loss_mask.sum())
        lengths[sample.trajectory] = lengths.get(sample.trajectory, 0) + trained
    total = sum(lengths.values())

    def weight(trajectory: int) -> float:
        if aggregation == "token_mean":
            return 1.0 / max(total, 1)
        if aggregation == "sequence_mean_token_mean":
            return 1.0 / (len(lengths) * max(lengths[trajectory], 1))
        return 1.0 / (len(lengths) * sequence_norm)

    return [
        dataclasses.replace(
            sample,
            weights=sample.loss_mask.astype(np.float32) * np.float32(weight(sample.trajectory)),
        )
        for sample in samples
    ]
