"""Offers the trainer's weights over process groups: transport ``nccl``, with gloo where there is no
GPU.

1. Each rank of the trainer copies and sends a share of the buckets: bucket i is rank i modulo
   their number's (:mod:`axisrl.ops.broadcast`). Where every rank holds the same weights, rank 0
   alone is asked for an offer, and the others copy when it tells them to, before
   :meth:`WeightSender.publish` returns. Where they divide a model, tensors pass all ranks one
   after another (:meth:`WeightSender.collect`): none holds more than its share and a bucket.
2. What is on offer are copies, where the weights are: the trainer may go on, and until the next
   offer any engine can have them, also one that starts late. They are given up when the weights
   leave the device.
3. The checksum is rank 0's over all weights as it has them, so ranks that hold different ones are
   found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from torch import Tensor

from axisrl.errors import EnvironmentProblem, RankLost, RunFailed
from axisrl.ops.broadcast.follower import Follower
from axisrl.ops.broadcast.leader import Leader
from axisrl.ops.checksum import Checksum, weights_checksum
from axisrl.ops.flat_buckets import Bucket, filled, grouped, layout
from axisrl.ops.weights_out import tensors_of
from axisrl.types import AdapterMeta, Ranks, TensorMeta, WeightUpdate

Weights = Mapping[str, Tensor]


class _Collected(NamedTuple):
    buckets: Sequence[Bucket]
    tensors: tuple[TensorMeta, ...]
    """Of all ranks."""
    checksum: str


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
        self._collected: _Collected | None = None
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
        location = self._leader.offer(partial(self._share, weights))
        return WeightUpdate(
            version=version,
            transport="nccl",
            location=location,
            tensors=tensors_of(weights),
            checksum=weights_checksum(weights),
            adapter=adapter,
        )

    def collect(self, named: Iterable[tuple[str, Tensor]], size: int) -> None:
        """Copy this rank's share of tensors that come one after another, on every rank the same,
        for :meth:`publish_collected`. What was on offer no longer is.

        ``size``: about how many bytes they are, on every rank the same number.
        """
        self.withdraw()
        buckets, tensors, checksum = [], [], Checksum()
        for at, group in enumerate(grouped(named, self._largest(size))):
            for entry, tensor in group.items():
                tensors.append(TensorMeta(name=entry.name, shape=entry.shape, dtype=entry.dtype))
                if self._rank == 0:
                    checksum.add(entry.name, tensor)
            if at % self._size == self._rank:
                by_name = {entry.name: tensor for entry, tensor in group.items()}
                buckets.append(filled(by_name, list(group)))
        self._collected = _Collected(buckets, tuple(tensors), checksum.hexdigest())

    def publish_collected(self, version: int, adapter: AdapterMeta | None = None) -> WeightUpdate:
        """Offer as ``version`` what every rank has collected by now; ``adapter`` as in
        :meth:`publish`. Raises as it does, and ``RunFailed`` when this one has not."""
        collected = self._taken()
        location = self._leader.offer(lambda: collected.buckets)
        return WeightUpdate(
            version=version,
            transport="nccl",
            location=location,
            tensors=collected.tensors,
            checksum=collected.checksum,
            adapter=adapter,
        )

    @property
    def _leader(self) -> Leader:
        if isinstance(self._part, Leader):
            return self._part
        raise EnvironmentProblem(
            f"rank {self._rank} does not offer weights", fix="ask rank 0, which speaks for all"
        )

    def _taken(self) -> _Collected:
        collected, self._collected = self._collected, None
        if collected is None:
            raise RunFailed("no weights were collected since the last offer", fix="collect first")
        return collected

    def withdraw(self) -> None:
        """Give up what is on offer; a transfer that runs is over first."""
        if self._part is not None:
            self._part.withdraw()

    def close(self) -> None:
        """Leave; idempotent."""
        if self._part is not None:
            self._part.close()

    def _copy(self) -> Sequence[Bucket]:
        if self._collected is not None:
            return self._taken().buckets
        return self._share(self._weights())

    def _share(self, weights: Weights) -> Sequence[Bucket]:
        """This rank's buckets of all; small models have one a rank."""
        size = sum(weight.nbytes for weight in weights.values())
        buckets = layout(weights, self._largest(size))
        return [filled(weights, entries) for entries in buckets[self._rank :: self._size]]

    def _largest(self, size: int) -> int:
        """Bytes of a bucket, of ``size`` in all."""
        return min(self._bucket_bytes, -(-size // self._size))
