"""Offers the trainer's weights over process groups: transport ``nccl``, with gloo where there is no
GPU.

1. Every rank of the trainer holds the same weights, so each copies and sends a share of the
   buckets: bucket i is rank i modulo their number's (:mod:`axisrl.ops.broadcast`). Rank 0 alone is
   asked for an offer; the others copy when it tells them to, before :meth:`WeightSender.publish`
   returns.
2. What is on offer are copies, where the weights are: the trainer may go on, and until the next
   offer any engine can have them, also one that starts late. They are given up when the weights
   leave the device.
3. The checksum is rank 0's over its own weights, so ranks that hold different ones are found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch import Tensor

from axisrl.errors import EnvironmentProblem, RankLost
from axisrl.ops.broadcast.follower import Follower
from axisrl.ops.broadcast.leader import Leader
from axisrl.ops.checksum import weights_checksum
from axisrl.ops.flat_buckets import Bucket, filled, layout
from axisrl.ops.weights_out import tensors_of
from axisrl.types import AdapterMeta, Ranks, WeightUpdate

Weights = Mapping[str, Tensor]


class WeightSender:
    """One rank's part."""

    def __init__(
        self,
        ranks: Ranks | None,
        weights: Callable[[], Weights],
        *,
        host: str,
        bucket_bytes: int,
        timeout_s: float,
    ) -> None:
        """``weights``: what a rank but the first offers, when it is told to. ``host``: this
        machine, as others reach it. ``timeout_s``: longest wait for another process, and for a
        buffer to arrive."""
        self._bucket_bytes = bucket_bytes
        self._timeout_s = timeout_s
        self._weights = weights
        self._rank, self._size = (ranks.rank, ranks.size) if ranks else (0, 1)
        self._part: Leader | Follower | None = None
        if self._rank == 0:
            self._part = Leader(host, senders=self._size, timeout_s=timeout_s)

    @property
    def address(self) -> str:
        """Where the first rank listens; empty for others."""
        return self._part.address if isinstance(self._part, Leader) else ""

    def join(self, leader: str) -> None:
        """To be called on every rank with the address of the first. Raises ``RankLost`` when it is
        not there."""
        if self._rank == 0:
            return
        try:
            self._part = Follower(leader, self._rank, self._copy, self._timeout_s)
        except OSError as problem:
            raise RankLost(
                f"rank {self._rank} of {self._size} does not reach rank 0 at {leader}: {problem}",
                fix="see why rank 0 ended; ranks must reach each other by any port",
            ) from problem

    def publish(
        self, version: int, weights: Weights, adapter: AdapterMeta | None = None
    ) -> WeightUpdate:
        """Offer ``weights`` (Hugging Face names, tied ones once) as ``version``; with ``adapter``
        they are its tensors. Raises ``WeightSyncError`` when another rank cannot offer its
        share."""
        if not isinstance(self._part, Leader):
            raise EnvironmentProblem(
                f"rank {self._rank} does not offer weights", fix="ask rank 0, which speaks for all"
            )
        location = self._part.offer(partial(self._share, weights))
        return WeightUpdate(
            version=version,
            transport="nccl",
            location=location,
            tensors=tensors_of(weights),
            checksum=weights_checksum(weights),
            adapter=adapter,
        )

    def withdraw(self) -> None:
        """Give up what is on offer; a transfer that runs is over first."""
        if self._part is not None:
            self._part.withdraw()

    def close(self) -> None:
        """Leave; idempotent."""
        if self._part is not None:
            self._part.close()

    def _copy(self) -> Sequence[Bucket]:
        return self._share(self._weights())

    def _share(self, weights: Weights) -> Sequence[Bucket]:
        """This rank's buckets of all; small models have one a rank."""
        size = sum(weight.nbytes for weight in weights.values())
        buckets = layout(weights, min(self._bucket_bytes, -(-size // self._size)))
        return [filled(weights, entries) for entries in buckets[self._rank :: self._size]]
