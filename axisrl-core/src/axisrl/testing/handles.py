"""What a :class:`axisrl.protocols.HandleStore` promises. It does not measure speed.

Every check builds its own stores and closes them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import multiprocessing
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from axisrl.errors import StoreError
from axisrl.plugins.components import ComponentRef, HandleStoreComponent
from axisrl.protocols.handles import HandleStore
from axisrl.testing.cases import HandleStoreCase
from axisrl.testing.fakes.clock import FakeClock
from axisrl.testing.harness import Builder, CheckFailed, CheckSkipped, Subject, Suite, require
from axisrl.types import BuildContext, Handle, Payload

StoreSubject = Subject[HandleStoreCase]
_SHORT_S = 0.2
"""Time to live where the store keeps its own clock."""


async def what_is_put_comes_back_bit_for_bit(subject: StoreSubject) -> None:
    """Every number type, NaN payloads, empty arrays, scalars and arrays that are not contiguous."""
    async with _store(subject) as store:
        for payload in _payloads():
            got = await store.get(await store.put(payload, owner="suite"))
            _require_equal(got, payload)


async def large_payloads_come_back(subject: StoreSubject) -> None:
    """1 MiB, and 256 MiB where the case says so."""
    sizes = [1 << 20, (1 << 28) * subject.case.large]
    async with _store(subject) as store:
        for size in filter(None, sizes):
            payload = np.arange(size // 4, dtype=np.int32)
            handle = await store.put(payload, owner="suite")
            _require_equal(await store.get(handle), payload)
            await store.release([handle])


async def a_handle_is_small_and_plain(subject: StoreSubject) -> None:
    """At most 512 bytes of JSON however large the array, naming its shape, dtype and owner."""
    async with _store(subject) as store:
        payload = np.zeros((512, 128), np.float32)
        handle = await store.put(payload, owner="worker-7")
        size = len(json.dumps(dataclasses.asdict(handle)))
        require(size <= 512, f"a handle takes {size} bytes as JSON")
        require(handle.shape == payload.shape, f"the handle says shape {handle.shape}")
        require(np.dtype(handle.dtype) == payload.dtype, f"the handle says {handle.dtype}")
        require(handle.owner == "worker-7", f"the handle says owner {handle.owner!r}")


async def what_is_read_cannot_be_written(subject: StoreSubject) -> None:
    """``get`` is read-only, and the store keeps a copy of what it was given."""
    async with _store(subject) as store:
        payload = np.arange(5, dtype=np.int32)
        handle = await store.put(payload, owner="suite")
        payload[:] = -1
        got = await store.get(handle)
        require(not got.flags.writeable, "get() gave an array that can be written to")
        _require_equal(got, np.arange(5, dtype=np.int32))


async def rows_are_a_slice_of_the_first_axis(subject: StoreSubject) -> None:
    """Inside the array they are read alone; outside they are a ``StoreError``."""
    async with _store(subject) as store:
        payload = np.arange(24, dtype=np.float32).reshape(8, 3)
        handle = await store.put(payload, owner="suite")
        for rows in ((0, 8), (2, 5), (7, 8), (3, 3)):
            got = await store.get(dataclasses.replace(handle, rows=rows))
            _require_equal(got, payload[slice(*rows)])
        outside = dataclasses.replace(handle, rows=(4, 9))
        await _require_refused(store, outside, "rows 4:9 of 8")


async def release_frees(subject: StoreSubject) -> None:
    """Items and bytes go down; a second release finds nothing; other handles stay."""
    async with _store(subject) as store:
        before = await store.stats()
        kept = await store.put(np.ones(10, np.int32), owner="suite")
        gone = [await store.put(np.ones(1000, np.int32), owner="suite") for _ in range(3)]
        full = await store.stats()
        require(
            full.items == before.items + 4 and full.bytes >= before.bytes + 12_000,
            f"after four puts the store holds {full}, before {before}",
        )
        released = await store.release(gone)
        require(released == 3, f"releasing three handles returned {released}")
        after = await store.stats()
        require(
            after.items == before.items + 1 and after.bytes <= full.bytes - 12_000,
            f"after the release the store holds {after}",
        )
        again = await store.release(gone)
        require(again == 0, f"releasing them again returned {again}")
        _require_equal(await store.get(kept), np.ones(10, np.int32))


async def a_released_handle_is_refused(subject: StoreSubject) -> None:
    """``StoreError`` that names it; likewise a handle that never was."""
    async with _store(subject) as store:
        handle = await store.put(np.arange(3, dtype=np.int32), owner="suite")
        await store.release([handle])
        await _require_refused(store, handle, "a released handle")
        kept = await store.put(np.arange(3, dtype=np.int32), owner="suite")
        unknown = dataclasses.replace(kept, key=_other_key(kept.key))
        await _require_refused(store, unknown, "an unknown key")


async def what_was_read_outlives_its_release(subject: StoreSubject) -> None:
    """A reader never sees its array change or vanish."""
    async with _store(subject) as store:
        payload = np.arange(100_000, dtype=np.int32)
        handle = await store.put(payload, owner="suite")
        got = await store.get(handle)
        await store.release([handle])
        await store.put(np.zeros_like(payload), owner="suite")
        _require_equal(got, payload)


async def owners_are_released_whole_and_alone(subject: StoreSubject) -> None:
    """What a dead worker put goes, what the others put stays."""
    async with _store(subject) as store:
        mine = [await store.put(np.arange(i + 1), owner="worker-1") for i in range(3)]
        other = await store.put(np.arange(9), owner="worker-11")
        released = await store.release_owner("worker-1")
        require(released == 3, f"an owner of 3 arrays had {released} released")
        for handle in mine:
            await _require_refused(store, handle, "a handle of a released owner")
        _require_equal(await store.get(other), np.arange(9))
        nobody = await store.release_owner("nobody")
        require(nobody == 0, f"an owner of nothing had {nobody} released")


async def payloads_expire(subject: StoreSubject) -> None:
    """After ``ttl_s`` and not before; without one, never."""
    clock = FakeClock(start=1000.0)
    faked = subject.case.fake_clock
    context = subject.context(clock=clock) if faked else subject.context()
    ttl_s = 10.0 if faked else _SHORT_S
    async with _store(subject, context) as store:
        forever = await store.put(np.arange(4), owner="suite")
        if faked:
            handle = await store.put(np.arange(5), owner="suite", ttl_s=ttl_s)
            clock.advance(0.9 * ttl_s)
            _require_equal(await store.get(handle), np.arange(5))
            clock.advance(0.2 * ttl_s)
        else:
            handle = await store.put(np.arange(5), owner="suite", ttl_s=ttl_s)
            await asyncio.sleep(1.5 * ttl_s)
        await _require_refused(store, handle, "an expired handle")
        items = (await store.stats()).items
        require(items == 1, f"{items} items are held after one of two expired")
        _require_equal(await store.get(forever), np.arange(4))


async def damage_is_found(subject: StoreSubject) -> None:
    """Bytes that do not have the handle's checksum are a ``StoreError``, not data."""
    async with _store(subject) as store:
        handle = await store.put(np.arange(64, dtype=np.int32), owner="suite")
        for change in ({"checksum": handle.checksum ^ 1}, {"shape": (32,)}):
            wrong = dataclasses.replace(handle, **change)
            await _require_refused(store, wrong, f"a handle with a wrong {next(iter(change))}")


async def many_at_once_do_not_mix(subject: StoreSubject) -> None:
    """32 concurrent puts and gets."""
    async with _store(subject) as store:

        async def once(number: int) -> None:
            payload = np.full(100 + number, number, np.int32)
            handle = await store.put(payload, owner=f"worker-{number % 4}")
            _require_equal(await store.get(handle), payload)

        await asyncio.gather(*(once(number) for number in range(32)))
        items = (await store.stats()).items
        require(items == 32, f"{items} items are held after 32 puts")


async def handles_reach_other_processes(subject: StoreSubject) -> None:
    """Where the descriptor says so: another process reads ours, and we read what it put."""
    descriptor = subject.descriptor
    if not isinstance(descriptor, HandleStoreComponent) or descriptor.reach == "process":
        raise CheckSkipped("it reaches this process only")
    if not subject.case.other_process:
        raise CheckSkipped("the case says other_process=False")
    async with _store(subject) as store:
        payload = np.arange(1000, dtype=np.float32)
        handle = await store.put(payload, owner="suite")
        loop = asyncio.get_running_loop()
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
            seen, answer = await loop.run_in_executor(
                pool, _in_child, subject.builder, subject.ref, subject.context(), handle
            )
        require(seen == payload.tobytes(), "another process read other bytes than were put")
        _require_equal(await store.get(answer), payload[::-1])


async def close_is_idempotent(subject: StoreSubject) -> None:
    """Afterwards nothing is left to read."""
    store: HandleStore = subject.build()
    handle = await store.put(np.arange(3), owner="suite")
    await store.close()
    await store.close()
    await _require_refused(store, handle, "a handle of a closed store")


class HandleStoreSuite(Suite):
    """Tries a store with ``HandleStoreCase``s."""

    kind = "store"
    checks = (
        what_is_put_comes_back_bit_for_bit,
        large_payloads_come_back,
        a_handle_is_small_and_plain,
        what_is_read_cannot_be_written,
        rows_are_a_slice_of_the_first_axis,
        release_frees,
        a_released_handle_is_refused,
        what_was_read_outlives_its_release,
        owners_are_released_whole_and_alone,
        payloads_expire,
        damage_is_found,
        many_at_once_do_not_mix,
        handles_reach_other_processes,
        close_is_idempotent,
    )


@asynccontextmanager
async def _store(
    subject: StoreSubject, context: BuildContext | None = None
) -> AsyncIterator[HandleStore]:
    store: HandleStore = subject.build(context)
    try:
        yield store
    finally:
        await store.close()


def _payloads() -> list[Payload]:
    rng = np.random.default_rng(0)
    dtypes = (np.int32, np.int64, np.uint8, np.bool_, np.float16, np.float32, np.float64)
    plain: list[Any] = [rng.integers(0, 2, (5, 3)).astype(dtype) for dtype in dtypes]
    odd = np.asarray([0x7FC00001, 0xFF800000, 0x80000000, 1], np.uint32).view(np.float32)
    shapes = [np.zeros(0, np.int32), np.zeros((3, 0), np.float32), np.asarray(7, np.int32)]
    strided = np.arange(24, dtype=np.int32).reshape(4, 6)
    return [*plain, odd, *shapes, strided.T, strided[::2, ::-1]]


def _require_equal(got: Payload, want: Payload) -> None:
    told = f"{want.dtype} array of shape {want.shape}"
    require(got.shape == want.shape, f"a {told} came back with shape {got.shape}")
    require(got.dtype == want.dtype, f"a {told} came back as {got.dtype}")
    require(got.tobytes() == want.tobytes(), f"a {told} came back with other bytes")


async def _require_refused(store: HandleStore, handle: Handle, what: str) -> None:
    try:
        got = await store.get(handle)
    except StoreError as error:
        require(handle.key in str(error), f"the error for {what} does not name it: {error.message}")
        return
    except Exception as problem:
        raise CheckFailed(
            f"{what} raised {type(problem).__name__}, not StoreError: {problem}"
        ) from problem
    raise CheckFailed(f"{what} was read as an array of shape {got.shape}")


def _other_key(key: str) -> str:
    """A key of the same form that was never given out."""
    last = "0" if key[-1] != "0" else "1"
    return key[:-1] + last


def _in_child(
    builder: Builder, ref: ComponentRef, context: BuildContext, handle: Handle
) -> tuple[bytes, Handle]:
    """Runs in another process: bytes of the array it reads there, handle of the array reversed."""

    async def talk() -> tuple[bytes, Handle]:
        store: HandleStore = builder(ref, context)
        payload = await store.get(handle)
        return payload.tobytes(), await store.put(payload[::-1], owner="child")

    return asyncio.run(talk())
