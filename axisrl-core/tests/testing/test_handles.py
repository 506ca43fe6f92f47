"""Each check of HandleStoreSuite catches a store that breaks its promise."""

import asyncio
import dataclasses

import numpy as np
import pytest

from axisrl.builtin.memory_handles import MemoryHandleStore
from axisrl.config.base import NoConfig
from axisrl.errors import StoreError
from axisrl.plugins import HandleStoreComponent
from axisrl.testing import HandleStoreCase, HandleStoreSuite
from axisrl.testing import handles as checks
from axisrl.testing.components import build_component

CASE = HandleStoreCase(use="core/memory")
HERE = HandleStoreComponent(name="memory", target="toy:Store")
MACHINE = HandleStoreComponent(name="memory", target="toy:Store", reach="machine")


class Good(MemoryHandleStore):
    def __init__(self, context):
        super().__init__(NoConfig(), context)


class Rounds(Good):
    """Keeps everything as float32."""

    async def put(self, payload, *, owner, ttl_s=None):
        kept = payload.astype(np.float32)
        return await super().put(kept, owner=owner, ttl_s=ttl_s)


class Flattens(Good):
    async def get(self, handle):
        return (await super().get(handle)).reshape(-1)


class CutsLargeOnes(Good):
    async def get(self, handle):
        return (await super().get(handle))[: 1 << 17]


class CarriesThePayload(Good):
    async def put(self, payload, *, owner, ttl_s=None):
        handle = await super().put(payload, owner=owner, ttl_s=ttl_s)
        return dataclasses.replace(handle, key=payload.tobytes().hex())


class ForgetsTheOwner(Good):
    async def put(self, payload, *, owner, ttl_s=None):
        handle = await super().put(payload, owner=owner, ttl_s=ttl_s)
        return dataclasses.replace(handle, owner="")


class GivesOutItsOwn(Good):
    async def get(self, handle):
        return (await super().get(handle)).copy()


class KeepsNoCopy(Good):
    """A reader sees what the writer does afterwards."""

    kept = None

    async def put(self, payload, *, owner, ttl_s=None):
        self.kept = payload
        return await super().put(payload, owner=owner, ttl_s=ttl_s)

    async def get(self, handle):
        view = self.kept.view()
        view.setflags(write=False)
        return view


class IgnoresRows(Good):
    async def get(self, handle):
        return await super().get(dataclasses.replace(handle, rows=None))


class ClipsRows(Good):
    async def get(self, handle):
        if handle.rows is None:
            return await super().get(handle)
        whole = await super().get(dataclasses.replace(handle, rows=None))
        return whole[slice(*handle.rows)]


class NeverFrees(Good):
    async def release(self, handles):
        return len(handles)


class CountsTwice(Good):
    async def release(self, handles):
        await super().release(handles)
        return len(handles)


class ReadsReleased(Good):
    def __init__(self, context):
        super().__init__(context)
        self.all = {}

    async def put(self, payload, *, owner, ttl_s=None):
        handle = await super().put(payload, owner=owner, ttl_s=ttl_s)
        self.all[handle.key] = payload
        return handle

    async def get(self, handle):
        return self.all[handle.key]


class RaisesKeyError(Good):
    async def get(self, handle):
        try:
            return await super().get(handle)
        except StoreError:
            raise KeyError(handle.key) from None


class NamesNothing(Good):
    async def get(self, handle):
        try:
            return await super().get(handle)
        except StoreError:
            raise StoreError("not here") from None


class ReusesMemory(Good):
    """One buffer for all arrays: a reader's array becomes the next one."""

    def __init__(self, context):
        super().__init__(context)
        self.buffer = np.zeros(1 << 20, np.uint8)

    async def put(self, payload, *, owner, ttl_s=None):
        handle = await super().put(payload, owner=owner, ttl_s=ttl_s)
        self.buffer[: payload.nbytes] = np.frombuffer(payload.tobytes(), np.uint8)
        return handle

    async def get(self, handle):
        whole = await super().get(handle)
        view = self.buffer[: whole.nbytes].view(whole.dtype).reshape(whole.shape)
        view.setflags(write=False)
        return view


class OwnersByPrefix(Good):
    async def release_owner(self, owner):
        entries = list(self._ledger._entries.items())
        return self._ledger.drop([key for key, e in entries if e.owner.startswith(owner)])


class ForgetsTheTtl(Good):
    async def put(self, payload, *, owner, ttl_s=None):
        return await super().put(payload, owner=owner)


class ExpiresEarly(Good):
    async def put(self, payload, *, owner, ttl_s=None):
        return await super().put(payload, owner=owner, ttl_s=ttl_s and ttl_s / 2)


class TrustsTheBytes(Good):
    async def get(self, handle):
        kept = self._ledger.get(handle.key)
        if kept is None:
            return await super().get(handle)
        return kept


class OneAtATime(Good):
    """Mixes up who waits for what."""

    latest = None

    async def put(self, payload, *, owner, ttl_s=None):
        handle = await super().put(payload, owner=owner, ttl_s=ttl_s)
        self.latest = handle
        await asyncio.sleep(0)
        return self.latest


class ReadableWhenClosed(Good):
    async def close(self):
        self._closed = True


BROKEN = [
    (checks.what_is_put_comes_back_bit_for_bit, Rounds, "int32 array .* came back as float32"),
    (checks.what_is_put_comes_back_bit_for_bit, Flattens, "came back with shape"),
    (checks.large_payloads_come_back, CutsLargeOnes, r"shape \(262144,\) came back with shape"),
    (checks.a_handle_is_small_and_plain, CarriesThePayload, "bytes as JSON"),
    (checks.a_handle_is_small_and_plain, ForgetsTheOwner, "owner ''"),
    (checks.what_is_read_cannot_be_written, GivesOutItsOwn, "can be written to"),
    (checks.what_is_read_cannot_be_written, KeepsNoCopy, "other bytes"),
    (checks.rows_are_a_slice_of_the_first_axis, IgnoresRows, "came back with shape"),
    (checks.rows_are_a_slice_of_the_first_axis, ClipsRows, "rows 4:9 of 8 was read"),
    (checks.release_frees, NeverFrees, "after the release the store holds"),
    (checks.release_frees, CountsTwice, "releasing them again returned 3"),
    (checks.a_released_handle_is_refused, ReadsReleased, "a released handle was read"),
    (checks.a_released_handle_is_refused, RaisesKeyError, "raised KeyError, not StoreError"),
    (checks.a_released_handle_is_refused, NamesNothing, "does not name it"),
    (checks.what_was_read_outlives_its_release, ReusesMemory, "other bytes"),
    (checks.owners_are_released_whole_and_alone, OwnersByPrefix, "3 arrays had 4 released"),
    (checks.payloads_expire, ForgetsTheTtl, "an expired handle was read"),
    (checks.damage_is_found, TrustsTheBytes, "a wrong checksum was read"),
    (checks.many_at_once_do_not_mix, OneAtATime, "came back"),
    (checks.close_is_idempotent, ReadableWhenClosed, "a closed store was read"),
]


def test_a_good_store_passes_every_check(trial):
    skips = [checks.handles_reach_other_processes]
    trial.passes(HandleStoreSuite, CASE, Good, HERE, skips=skips)


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_store_is_caught(trial, check, make, told):
    trial.fails(check, CASE, make, told, HERE)


def test_a_store_whose_arrays_expire_early_is_caught(trial):
    with pytest.raises(StoreError, match="released, expired"):
        trial(checks.payloads_expire, CASE, ExpiresEarly, HERE)


def test_a_store_that_does_not_reach_as_far_as_it_says_is_caught(trial):
    # The builder crosses to the other process by name, so it is the plugin manager's own.
    with pytest.raises(StoreError, match="not in core/memory"):
        trial(checks.handles_reach_other_processes, CASE, builder=build_component, says=MACHINE)


def test_every_check_catches_something():
    caught = {check for check, _, _ in BROKEN} | {checks.handles_reach_other_processes}
    assert caught == set(HandleStoreSuite.checks)
