"""What a trainer offers its weights with, as its options say. It offers nothing itself.

A file or a GPU's memory (:mod:`axisrl.ops.weights_out`), or process groups
(:mod:`axisrl.ops.weights_sent`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from axisrl.config.training import TrainingOptions
from axisrl.ops.weights_out import WeightPublisher
from axisrl.ops.weights_sent import WeightSender
from axisrl.types import Ranks


def weight_offer(
    config: TrainingOptions,
    run_dir: Path,
    host: str,
    ranks: Ranks | None,
    weights: Callable[[], Mapping[str, Tensor]],
) -> WeightPublisher | WeightSender:
    """``host`` is this machine as others reach it, ``weights`` what a rank but the first sends when
    it is told to."""
    bucket_bytes = config.bucket_mib * 2**20
    if config.transport != "nccl":
        return WeightPublisher(run_dir, config.transport, bucket_bytes)
    return WeightSender(
        ranks,
        weights,
        host=host,
        bucket_bytes=bucket_bytes,
        timeout_s=config.transfer_timeout_s,
    )
