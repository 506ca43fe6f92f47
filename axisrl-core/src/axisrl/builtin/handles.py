"""What the handle stores share: making a handle, checking one, reading through one.

It keeps no array itself; a store decides where the bytes are and when they go.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from axisrl.errors import StoreError, StoreLost
from axisrl.types import Handle, Payload

_OFF_LOOP_BYTES = 1 << 20
"""Payloads from this size are copied and checked in a thread, so that the event loop goes on."""

T = TypeVar("T")


def prepared(payload: Payload) -> Payload:
    """The array in C order. Refuses types whose bytes alone do not make them whole again."""
    if payload.dtype.kind not in "biufc":
        raise StoreError(
            f"a handle store keeps plain numbers, not dtype {payload.dtype}",
            fix="store the bytes as a uint8 array",
        )
    # ascontiguousarray would turn shape () into (1,).
    return np.asarray(payload, order="C")


def handle_for(store: str, key: str, payload: Payload, owner: str) -> Handle:
    """The handle of an array in C order."""
    return Handle(
        store=store,
        key=key,
        shape=payload.shape,
        dtype=payload.dtype.str,
        owner=owner,
        checksum=checksum(payload),
    )


def checksum(payload: Payload) -> int:
    """CRC-32 of the bytes of an array in C order."""
    return zlib.crc32(raw(payload))


def raw(payload: Payload) -> memoryview:
    """The bytes of an array in C order, without a copy."""
    flat = payload.reshape(-1)
    return flat.view(np.uint8).data if flat.size else memoryview(b"")


def require_store(handle: Handle, store: str) -> None:
    """Raises ``StoreError`` for a handle of another store."""
    if handle.store != store:
        raise StoreError(
            f"handle {handle.key} belongs to {handle.store}, not to {store}",
            fix="use one `store:` in the whole run",
        )


def gone(handle: Handle, reason: str = "released, expired or never put") -> StoreLost:
    """The error for a handle without an array behind it."""
    return StoreLost(
        f"handle {handle.key} of {handle.owner} is not in {handle.store}: {reason}",
        fix="release a handle only after its last read, or raise its ttl_s",
    )


def closed(store: str) -> StoreLost:
    """The error for putting into a store after its ``close``."""
    return StoreLost(f"{store} is closed: the run is over")


def read(handle: Handle, whole: Payload) -> Payload:
    """``handle.rows`` of the array, or all of it with its checksum checked; no copy."""
    if whole.shape != handle.shape or whole.dtype.str != handle.dtype:
        raise StoreError(
            f"handle {handle.key} promises {handle.dtype}{list(handle.shape)}, "
            f"{handle.store} holds {whole.dtype.str}{list(whole.shape)}"
        )
    if handle.rows is None:
        if checksum(whole) != handle.checksum:
            raise StoreLost(
                f"handle {handle.key} of {handle.owner} is damaged: its bytes in {handle.store} "
                "do not have its checksum"
            )
        return whole
    start, stop = handle.rows
    length = handle.shape[0] if handle.shape else 0
    if not 0 <= start <= stop <= length:
        raise StoreError(f"handle {handle.key} asks for rows {start}:{stop} of {length}")
    return whole[start:stop]


def deadline(clock: Callable[[], float], ttl_s: float | None) -> float | None:
    """When a payload put now expires."""
    return None if ttl_s is None else clock() + ttl_s


async def off_loop(size: int, call: Callable[..., T], *args: Any) -> T:
    """Call directly when ``size`` bytes are few, in a thread when they are many."""
    if size < _OFF_LOOP_BYTES:
        return call(*args)
    import asyncio

    return await asyncio.to_thread(call, *args)


def run_key(run_dir: Path) -> str:
    """A short name that every process of one run derives alike."""
    import hashlib

    return hashlib.sha256(str(run_dir.absolute()).encode()).hexdigest()[:16]
