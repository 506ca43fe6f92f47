"""``core/shm``: one mapped file an array, for every process of this machine.

1. The run's files are in a :class:`axisrl.sharedfolder.SharedFolder`, keyed by the run folder. A
   file's name holds a hash of its owner and its expiry, so any process can free what a dead one put
   or began to write, or what expired; there is no index to keep in step.
2. A file appears by atomic rename, whole or not at all. ``get`` maps it read-only without a copy.
3. What a killed run left is cleared by the first store of that run, or of another of this user.

It does not reach other machines, and an array that is released stays readable to whoever has it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from axisrl.builtin import handles as shared
from axisrl.builtin.config import SharedMemoryConfig
from axisrl.errors import StoreError, StoreLost
from axisrl.sharedfolder import SharedFolder
from axisrl.types import BuildContext, Handle, Payload, StoreStats

_ID = "core/shm"
_NAME = re.compile(r"[0-9a-f]{16}-(?P<expires>[0-9]+|never)-[0-9a-f]{32}(\.part)?")
"""A file, or what is written of one until it is renamed."""
_SWEEP_S = 5.0
"""Least time between two looks of one process for expired files."""


class _Item(NamedTuple):
    name: str
    size: int


class SharedMemoryHandleStore:
    """See the module's docstring. Expiry is judged by ``context.clock``, which processes share."""

    def __init__(self, config: SharedMemoryConfig, context: BuildContext) -> None:
        self._clock = context.clock
        self._next_sweep = 0.0
        base = Path(config.folder) if config.folder else None
        self._shared = SharedFolder("handles", shared.run_key(context.run_dir), base)
        self._folder = self._shared.path

    async def put(self, payload: Payload, *, owner: str, ttl_s: float | None = None) -> Handle:
        """See :meth:`axisrl.protocols.HandleStore.put`. A full disk is a ``StoreError``."""
        if self._shared.closed:
            raise shared.closed(_ID)
        self._sweep()
        expires = shared.deadline(self._clock, ttl_s)
        stamp = "never" if expires is None else str(max(0, round(expires * 1000)))
        key = f"{_owner_hash(owner)}-{stamp}-{uuid.uuid4().hex}"
        return await shared.off_loop(
            payload.nbytes, self._write, shared.prepared(payload), key, owner
        )

    async def get(self, handle: Handle) -> Payload:
        """See :meth:`axisrl.protocols.HandleStore.get`."""
        shared.require_store(handle, _ID)
        if self._expired(handle.key):
            self._unlink(handle.key)
            raise shared.gone(handle, "expired")
        whole = self._map(handle)
        return await shared.off_loop(whole.nbytes, shared.read, handle, whole)

    async def release(self, handles: Sequence[Handle]) -> int:
        """See :meth:`axisrl.protocols.HandleStore.release`."""
        for handle in handles:
            shared.require_store(handle, _ID)
        return sum(self._unlink(handle.key) and not self._expired(handle.key) for handle in handles)

    async def release_owner(self, owner: str) -> int:
        """See :meth:`axisrl.protocols.HandleStore.release_owner`."""
        self._sweep(now=True)
        mine = f"{_owner_hash(owner)}-"
        return sum(self._unlink(item.name) for item in self._items() if item.name.startswith(mine))

    async def stats(self) -> StoreStats:
        """Counted from the folder, so it covers every process."""
        self._sweep(now=True)
        items = list(self._items())
        return StoreStats(items=len(items), bytes=sum(item.size for item in items))

    async def close(self) -> None:
        """See :meth:`axisrl.protocols.HandleStore.close`."""
        self._shared.close()

    def _write(self, payload: Payload, key: str, owner: str) -> Handle:
        handle = shared.handle_for(_ID, key, payload, owner)
        whole = f"{self._folder}/{key}"
        draft = f"{whole}.part"
        try:
            with open(draft, "wb", buffering=0) as file:
                # Written, not stored through a map: a full tmpfs then is an error, not SIGBUS.
                view = shared.raw(payload)
                while len(view):
                    view = view[file.write(view) :]
            os.rename(draft, whole)
        except OSError as problem:
            Path(draft).unlink(missing_ok=True)
            raise self._full(payload.nbytes, problem) from problem
        return handle

    def _full(self, size: int, problem: OSError) -> StoreError:
        if not self._folder.is_dir():
            return StoreLost(f"{_ID} lost its folder {self._folder}, with all that was in it")
        free = shutil.disk_usage(self._folder).free
        held = sum(item.size for item in self._items())
        return StoreError(
            f"{_ID} cannot keep {size} bytes in {self._folder}: {problem.strerror}; {free} bytes "
            f"are free and this run holds {held}",
            fix="give the store a larger `folder`, enlarge /dev/shm, or run fewer rollouts at once",
        )

    def _map(self, handle: Handle) -> Payload:
        dtype = np.dtype(handle.dtype)
        size = int(np.prod(handle.shape, dtype=np.int64)) * dtype.itemsize
        if not _NAME.fullmatch(handle.key):
            raise shared.gone(handle)
        try:
            with (self._folder / handle.key).open("rb") as file:
                found = os.fstat(file.fileno()).st_size
                buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if found else b""
        except FileNotFoundError:
            raise shared.gone(handle) from None
        if found != size:
            raise StoreLost(f"handle {handle.key} is damaged: {found} bytes instead of {size}")
        flat = np.frombuffer(buffer, dtype) if size else np.frombuffer(bytes(1), np.uint8)[:0]
        return flat.view(dtype).reshape(handle.shape)

    def _expired(self, name: str) -> bool:
        match = _NAME.fullmatch(name)
        stamp = match["expires"] if match else "never"
        return stamp != "never" and int(stamp) <= self._clock() * 1000

    def _unlink(self, name: str) -> bool:
        if not _NAME.fullmatch(name):
            return False
        try:
            (self._folder / name).unlink()
        except FileNotFoundError:
            return False
        return True

    def _sweep(self, now: bool = False) -> None:
        if now or self._clock() >= self._next_sweep:
            self._next_sweep = self._clock() + _SWEEP_S
            for item in self._items():
                if self._expired(item.name):
                    self._unlink(item.name)

    def _items(self) -> Iterator[_Item]:
        if not self._folder.is_dir():
            return
        for entry in os.scandir(self._folder):
            if not _NAME.fullmatch(entry.name):
                continue
            try:
                size = entry.stat().st_size
            except FileNotFoundError:
                continue
            yield _Item(entry.name, size)


def _owner_hash(owner: str) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:16]
