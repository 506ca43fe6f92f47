"""RankGroup: trainers of one model add up their gradients (torch.distributed, gloo).

1. Ranks meet at a TCP store of rank 0.
2. A sum travels as flat float32 buckets: through the CPU, whatever device the gradients are on,
   unless a group of torch's is named. It is the same on every rank, bit for bit: each part is added
   up in one place and then copied.
3. Or each rank gets its part of a sum, and all get all parts of the result
   (:mod:`axisrl.ops.masters`): together as many bytes as a sum, over NCCL. gloo sends a sum for its
   part already.
4. Nobody waits for ever: a rank that is missing is named after ``timeout_s``.

It knows no model and no optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from axisrl.errors import RankLost
from axisrl.types import Ranks

T = TypeVar("T")
_OWN_FAULTS = (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError))
"""Of this process's device, met while it waits for others: torch has the second since 2.8."""
_OF_A_PEER = ("/gloo/transport/", "ncclRemoteError")
"""In what torch's groups say of a peer that is gone or late: it has no class of its own."""
# Newer torch has new names for both, and warns of the old ones.
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
_all_gather: Any = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_BUCKET = 1 << 24
"""Numbers summed at once, unless one tensor has more."""


class RankGroup:
    """This process's membership; torch allows one a process."""

    def __init__(self, ranks: Ranks, backend: str = "gloo") -> None:
        """Meet the others; ``backend`` is torch's process group's, and has gloo for a CPU. Raises
        ``RankLost`` naming who did not come in time."""
        self._ranks = ranks
        self._cpu: Any = None
        """The group of what goes through the CPU; None is torch's default."""
        self._timeout = timedelta(seconds=ranks.timeout_s)
        host, _, port = ranks.rendezvous.rpartition(":")
        with self.waiting("start"):
            store = dist.TCPStore(  # type: ignore[attr-defined]
                host,
                int(port),
                is_master=ranks.rank == 0,
                timeout=self._timeout,
                wait_for_workers=False,
            )
            store.set(_key(ranks.rank), "here")
            self._wait_for_all(store)
            dist.init_process_group(
                backend,
                store=store,
                rank=ranks.rank,
                world_size=ranks.size,
                timeout=self._timeout,
            )
            if backend != "gloo":
                self._cpu = dist.new_group(backend="gloo", timeout=self._timeout)

    def meet(self) -> None:
        """Return when every rank is here. Raises ``RankLost``, on rank 0 with the names."""
        with self.waiting("step"):
            dist.monitored_barrier(self._cpu, timeout=self._timeout, wait_all_ranks=True)

    @torch.no_grad()
    def sum_(self, tensors: Sequence[Tensor], group: Any = None) -> None:
        """Replace each tensor by its sum over the ranks, in float32; all give the same shapes.

        With ``group``, one of torch's, over its ranks alone and on the tensors' own device.
        """
        with self.waiting("step"):
            for at in buckets([each.numel() for each in tensors]):
                bucket = tensors[at]
                device = torch.device("cpu") if group is None else bucket[0].device
                flat = torch.cat([each.reshape(-1).to(device, torch.float32) for each in bucket])
                dist.all_reduce(flat, group=self._cpu if group is None else group)
                parts = torch.split(flat, [each.numel() for each in bucket])
                for each, part in zip(bucket, parts, strict=True):
                    each.copy_(part.view_as(each))

    @torch.no_grad()
    def scatter_sum(self, rows_DP: Tensor, group: Any = None) -> Tensor:
        """(P,): this rank's row of the sum of all ranks' ``rows_DP``; each rank has one.

        With ``group``, as in :meth:`sum_`.
        """
        with self.waiting("step"):
            given = rows_DP.cpu() if group is None else rows_DP
            own_P = torch.empty_like(given[0])
            over = self._cpu if group is None else group
            _reduce_scatter(own_P, given.reshape(-1), group=over)
            return own_P.to(rows_DP.device)

    @torch.no_grad()
    def rows(self, own_P: Tensor, group: Any = None) -> Tensor:
        """(D, P): what each of the ranks gave, in their order, bit for bit.

        With ``group``, as in :meth:`sum_`.
        """
        with self.waiting("step"):
            given = own_P.cpu() if group is None else own_P
            ranks = self._ranks.size if group is None else dist.get_world_size(group)
            found = given.new_empty(ranks * len(given))
            over = self._cpu if group is None else group
            _all_gather(found, given, group=over)
            return found.view(ranks, -1).to(own_P.device)

    def place(self, group: Any = None) -> tuple[int, int]:
        """This process's rank among those of ``group``, one of torch's, or of all; and how many
        they are."""
        return dist.get_rank(group), dist.get_world_size(group)

    def gather(self, one: T) -> list[T]:
        """What every rank gave, by rank."""
        found: list[T] = [one] * self._ranks.size
        with self.waiting("step"):
            dist.all_gather_object(found, one, group=self._cpu)
        return found

    def close(self) -> None:
        """Leave; idempotent."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def _wait_for_all(self, store: Any) -> None:
        missing: list[str] = []
        for rank in range(self._ranks.size):
            try:
                store.wait([_key(rank)], timedelta(seconds=0.01) if missing else self._timeout)
            except dist.DistStoreError:
                missing.append(str(rank))
        if missing:
            raise RankLost(
                f"rank {', '.join(missing)} of {self._ranks.size} did not come to "
                f"{self._ranks.rendezvous} within {self._ranks.timeout_s:g} s",
                fix="see why it ended or hangs; raise placement.rank_timeout_s for large models",
            )

    @contextmanager
    def waiting(self, moment: str) -> Iterator[None]:
        """Around a wait for others in one of torch's groups: one that fails is ``RankLost``, which
        names the ``moment``."""
        try:
            yield
        except _OWN_FAULTS:
            raise
        except RuntimeError as problem:  # torch has no narrower class for a lost peer
            raise self._lost(moment, problem) from problem

    @contextmanager
    def computing(self, moment: str) -> Iterator[None]:
        """Around code of others that waits somewhere inside: what torch's groups say of a lost peer
        is ``RankLost``, which names the ``moment``, and every other error stays what it is."""
        try:
            yield
        except RuntimeError as problem:
            if not any(said in str(problem) for said in _OF_A_PEER):
                raise
            raise self._lost(moment, problem) from problem

    def _lost(self, moment: str, problem: RuntimeError) -> RankLost:
        ranks = self._ranks
        return RankLost(
            f"rank {ranks.rank} of {ranks.size} lost the others at a {moment} "
            f"({ranks.rendezvous}, {ranks.timeout_s:g} s): {problem}",
            fix="see why the missing rank ended or hangs; raise placement.rank_timeout_s for "
            "slow steps",
        )


def _key(rank: int) -> str:
    return f"axisrl/rank/{rank}"


def buckets(sizes: Sequence[int]) -> Iterator[slice]:
    """Slices of a sequence of tensors with so many numbers each, which travel at once."""
    start = total = 0
    for at, size in enumerate(sizes):
        if at > start and total + size > _BUCKET:
            yield slice(start, at)
            start, total = at, 0
        total += size
    if start < len(sizes):
        yield slice(start, len(sizes))
