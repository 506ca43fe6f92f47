"""``core/memory``: arrays in this process. Handles do not leave it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from axisrl.builtin import handles as shared
from axisrl.config.base import NoConfig
from axisrl.types import BuildContext, Handle, Payload, StoreStats

_ID = "core/memory"


class _Entry(NamedTuple):
    owner: str
    expires: float | None
    size: int
    value: Any

    def over(self, now: float) -> bool:
        return self.expires is not None and self.expires <= now


class Ledger:
    """A dictionary whose entries have an owner, a size and perhaps an end.

    What has expired is dropped at the next call of any kind.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._next_expiry: float | None = None
        # Actors of one process share a store and may live in threads of their own.
        self._lock = threading.Lock()

    def add(self, key: str, value: Any, *, owner: str, size: int, ttl_s: float | None) -> None:
        """Keep ``value`` under a key that is not taken, for ``ttl_s`` seconds if given."""
        with self._current() as entries:
            expires = shared.deadline(self._clock, ttl_s)
            entries[key] = _Entry(owner, expires, size, value)
            if expires is not None:
                known = self._next_expiry
                self._next_expiry = expires if known is None else min(known, expires)

    def get(self, key: str) -> Any:
        """The value, or None when there is none."""
        with self._current() as entries:
            return entries[key].value if key in entries else None

    def drop(self, keys: Iterable[str]) -> int:
        """Forget them; how many were there."""
        with self._current() as entries:
            return sum(entries.pop(key, None) is not None for key in keys)

    def drop_owner(self, owner: str) -> int:
        """Forget all of one owner's; how many."""
        with self._current() as entries:
            keys = [key for key, entry in entries.items() if entry.owner == owner]
            for key in keys:
                del entries[key]
            return len(keys)

    def stats(self) -> tuple[int, int]:
        """Entries and the sum of their sizes."""
        with self._current() as entries:
            return len(entries), sum(entry.size for entry in entries.values())

    def clear(self) -> None:
        """Forget everything."""
        with self._current() as entries:
            entries.clear()

    @contextmanager
    def _current(self) -> Iterator[dict[str, _Entry]]:
        """The entries, locked, without those that have expired."""
        with self._lock:
            now = self._clock()
            if self._next_expiry is not None and now >= self._next_expiry:
                kept = {key: one for key, one in self._entries.items() if not one.over(now)}
                ends = [one.expires for one in kept.values() if one.expires is not None]
                self._entries, self._next_expiry = kept, min(ends, default=None)
            yield self._entries


class MemoryHandleStore:
    """One dictionary of arrays."""

    def __init__(self, config: NoConfig, context: BuildContext) -> None:
        self._ledger = Ledger(context.clock)
        self._closed = False

    async def put(self, payload: Payload, *, owner: str, ttl_s: float | None = None) -> Handle:
        """See :meth:`axisrl.protocols.HandleStore.put`."""
        if self._closed:
            raise shared.closed(_ID)
        kept = np.array(shared.prepared(payload), order="C")
        kept.setflags(write=False)
        handle = await shared.off_loop(
            kept.nbytes, shared.handle_for, _ID, uuid.uuid4().hex, kept, owner
        )
        self._ledger.add(handle.key, kept, owner=owner, size=kept.nbytes, ttl_s=ttl_s)
        return handle

    async def get(self, handle: Handle) -> Payload:
        """See :meth:`axisrl.protocols.HandleStore.get`."""
        shared.require_store(handle, _ID)
        kept = self._ledger.get(handle.key)
        if kept is None:
            raise shared.gone(handle)
        # A view of a read-only array cannot be made writable again; the array itself could.
        return await shared.off_loop(kept.nbytes, shared.read, handle, kept.view())

    async def release(self, handles: Sequence[Handle]) -> int:
        """See :meth:`axisrl.protocols.HandleStore.release`."""
        for handle in handles:
            shared.require_store(handle, _ID)
        return self._ledger.drop([handle.key for handle in handles])

    async def release_owner(self, owner: str) -> int:
        """See :meth:`axisrl.protocols.HandleStore.release_owner`."""
        return self._ledger.drop_owner(owner)

    async def stats(self) -> StoreStats:
        """See :meth:`axisrl.protocols.HandleStore.stats`."""
        items, size = self._ledger.stats()
        return StoreStats(items=items, bytes=size)

    async def close(self) -> None:
        """See :meth:`axisrl.protocols.HandleStore.close`."""
        self._closed = True
        self._ledger.clear()
