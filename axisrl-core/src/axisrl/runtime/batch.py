"""The weights of a global batch's tokens, which hold every denominator of its loss.

``weights`` are what make a loss independent of how it is computed: token t of a global batch
carries ``1 / denominator`` of its aggregation, counted over the whole batch before any micro-batch
exists (Numerics in the design; DAPO arXiv 2503.14476 for token mean, Dr.GRPO arXiv 2503.20783 for
the fixed norm).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from axisrl.types import Aggregation, Sample


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
