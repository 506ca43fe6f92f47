"""Passes over nothing: a rank whose micro-batches are over answers others for its experts.

Shares that divide experts among themselves wait for each other in every layer, and need not have as
many micro-batches. What is missing is filled with micro-batches of one token, whose answer nobody
reads and whose gradient is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from axisrl.ops.token_batch import token_batch
from axisrl.types import PackedBatch
from axisrl_megatron.held import HeldModel

NOTHING = PackedBatch(
    rank=0,
    rows=(0,),
    row_starts=np.array([0, 1], np.int64),
    positions=np.zeros(1, np.int64),
    columns={
        "ids": np.zeros(1, np.int32),
        "labels": np.zeros(1, np.int32),
        "loss_mask": np.ones(1, bool),
        "temperature": np.ones(1, np.float32),
    },
)


def passes(held: HeldModel, count: int) -> int:
    """As many passes as this rank has to make for its own ``count``; every rank asks at once."""
    return max(held.mesh.gather(count)) if held.mesh.layout.coupled else count


@contextmanager
def together(held: HeldModel, batches: Sequence[PackedBatch]) -> Iterator[None]:
    """Around the passes of ``batches``, on every rank: in a model that is not a pipeline it goes on
    until the share with the most of them is over, too, with gradients unless they are off.

    A rank that is lost meanwhile is ``RankLost`` on the others.
    """
    with held.mesh.computing(), _filled(held, batches):
        yield


@contextmanager
def _filled(held: HeldModel, batches: Sequence[PackedBatch]) -> Iterator[None]:
    layout = held.mesh.layout
    if layout.pipeline > 1 or not layout.coupled:
        yield
        return
    own = sum(bool(np.any(batch.columns["loss_mask"])) for batch in batches)
    missing = passes(held, own) - own
    yield
    tokens = token_batch(NOTHING, held.device) if missing else None
    while tokens is not None and missing:
        missing -= 1
        value = held.spec.head == "value"
        answer = held.values(tokens) if value else held.logprobs(tokens)[0]
        if torch.is_grad_enabled():
            answer.backward(torch.zeros_like(answer))  # type: ignore[no-untyped-call]
