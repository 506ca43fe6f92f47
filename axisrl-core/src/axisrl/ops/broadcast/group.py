"""One sender and its receivers in a process group of torch: NCCL, or gloo through host memory.

1. Groups are made beside torch's default group, which belongs to others.
2. Every wait has an end: for the members to come, and for each buffer. Only NCCL's own start has
   none; it comes right after all have said that they are here, so that only who dies then is waited
   for.
3. A failure is a ``RuntimeError`` or an ``OSError``; the group is of no use afterwards.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

Backend = Literal["nccl", "gloo"]
_AHEAD = 4
"""Buffers begun while the first is not over: their order is fixed, and none waits for the next to
be begun."""
_RAISING = {"TORCH_NCCL_BLOCKING_WAIT": "1"}
"""Failures are raised in who waits. Otherwise torch ends the process: an engine, or the trainer."""
_ALIKE = {"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
"""Every member must have the same, and engines turn both off; unless the user chose."""


class Place(NamedTuple):
    """A member's place in a group."""

    name: str
    """Of the group; never used again."""
    rank: int
    """0 is the sender."""
    size: int
    backend: Backend


class BroadcastGroup:
    """This process's membership."""

    def __init__(self, store: Any, place: Place, timeout_s: float, device: torch.device) -> None:
        """Meet the others at a ``TCPStore``; buffers will be on ``device``. Raises
        ``ConnectionError`` naming who did not come in time."""
        self.place = place
        self._timeout = timedelta(seconds=timeout_s)
        scoped = dist.PrefixStore(place.name, store)  # type: ignore[attr-defined]
        self._meet(scoped)
        self._group: Any
        if place.backend == "nccl":
            with _environment():
                self._group = _nccl(scoped, place, self._timeout)
                self._group.eager_connect_single_device(device)
        else:
            self._group = dist.ProcessGroupGloo(scoped, place.rank, place.size, self._timeout)

    def begin(self, buffer: Tensor) -> _Transfer:
        """Send (rank 0) or receive ``buffer``, a flat uint8 tensor, in the order of calls."""
        carried = buffer if self.place.backend == "nccl" else buffer.cpu()
        options: Any = dist.BroadcastOptions()
        options.rootRank = 0
        with torch.cuda.device(buffer.device) if carried.is_cuda else nullcontext():
            work = self._group.broadcast([carried], options)
        return _Transfer(work, buffer, carried, self._timeout)

    def close(self) -> None:
        """Leave, whatever the others do; idempotent."""
        group, self._group = self._group, None
        if self.place.backend == "nccl" and group is not None:
            group.abort()

    def _meet(self, store: Any) -> None:
        place = self.place
        keys = [f"here/{rank}" for rank in range(place.size)]
        store.set(keys[place.rank], "")
        try:
            store.wait(keys, self._timeout)
        except dist.DistStoreError:
            missing = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
            raise ConnectionError(
                f"rank {', '.join(missing)} of {place.size} did not come to the group within "
                f"{self._timeout.total_seconds():g} s"
            ) from None


class _Transfer(NamedTuple):
    work: Any
    buffer: Tensor
    carried: Tensor
    """``buffer``, or its values in host memory."""
    timeout: timedelta

    def finish(self) -> None:
        self.work.wait(self.timeout)
        if self.carried is not self.buffer:
            self.buffer.copy_(self.carried)


def broadcast(parts: Iterable[tuple[BroadcastGroup, Tensor]]) -> None:
    """Send or receive buffers; every member of a group gives its buffers in the same order, and
    several groups that share members in the same order, too. Raises ``ConnectionError``."""
    begun: deque[_Transfer] = deque()
    try:
        for group, buffer in parts:
            begun.append(group.begin(buffer))
            if len(begun) > _AHEAD:
                begun.popleft().finish()
        while begun:
            begun.popleft().finish()
        return
    except RuntimeError as problem:  # torch has no narrower class for a lost peer
        failure = str(problem)
    # Neither they nor the error's frames may live: gloo's connections end with the last of them,
    # and only then do the others see that this member left.
    begun.clear()
    raise ConnectionError(failure)


def connect(address: str, timeout_s: float) -> Any:
    """A client of the store at ``host:port``."""
    host, _, port = address.rpartition(":")
    return dist.TCPStore(  # type: ignore[attr-defined]
        host, int(port), timeout=timedelta(seconds=timeout_s), wait_for_workers=False
    )


def open_store(host: str, timeout_s: float) -> tuple[Any, str]:
    """A store that this process serves, and its address."""
    store = dist.TCPStore(  # type: ignore[attr-defined]
        host, 0, is_master=True, timeout=timedelta(seconds=timeout_s), wait_for_workers=False
    )
    return store, f"{host}:{store.port}"


def identity(device: torch.device) -> str:
    """Of a GPU, the same in every process of a machine; empty for a CPU."""
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""


def backend_for(devices: Iterable[str]) -> Backend:
    """By the :func:`identity` of each member's device: NCCL takes one member a GPU."""
    known = list(devices)
    return "nccl" if all(known) and len(set(known)) == len(known) else "gloo"


def _nccl(store: Any, place: Place, timeout: timedelta) -> Any:
    module: Any = dist
    options = module.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return module.ProcessGroupNCCL(store, place.rank, place.size, options)


@contextmanager
def _environment() -> Iterator[None]:
    """What torch and NCCL read when a group starts, and take from nowhere else."""
    before = {name: os.environ.get(name) for name in (*_RAISING, *_ALIKE)}
    os.environ.update(_ALIKE | {name: old for name, old in before.items() if old} | _RAISING)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                del os.environ[name]
            else:
                os.environ[name] = old
