"""HandleStore: where heavy arrays live while ids, counts and scores travel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from axisrl.types import Handle, Payload, StoreStats


class HandleStore(Protocol):
    """``get`` after ``release``, after expiry or of an unknown key raises ``StoreError`` naming
    the handle.

    A store is built in every process that uses it, from the same config and run folder; where it
    reaches (this process, this machine, the cluster) is in its descriptor.
    """

    async def put(self, payload: Payload, *, owner: str, ttl_s: float | None = None) -> Handle:
        """Keep a copy of the array. Unless released, it expires after ``ttl_s`` seconds."""
        ...

    async def get(self, handle: Handle) -> Payload:
        """The array, or ``handle.rows`` of it, bit for bit and read-only. A damaged payload raises
        ``StoreError``."""
        ...

    async def release(self, handles: Sequence[Handle]) -> int:
        """Free them; returns how many were there. Releasing twice is not an error."""
        ...

    async def release_owner(self, owner: str) -> int:
        """Free everything an owner (a worker that died) put; returns how many."""
        ...

    async def stats(self) -> StoreStats:
        """What it holds now."""
        ...

    async def close(self) -> None:
        """Free everything this store holds, whichever process put it; idempotent.

        It ends the store for the whole run, so only the driver calls it; workers just end.
        """
        ...
