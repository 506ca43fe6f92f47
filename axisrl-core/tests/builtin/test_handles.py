"""What every built-in handle store promises."""

import asyncio
import dataclasses
import pickle

import numpy as np
import pytest

from axisrl.errors import StoreError

ARRAYS = {
    "ids": np.arange(7, dtype=np.int32),
    "nan": np.array([[1.5, np.nan], [-0.0, np.inf]], dtype=np.float32),
    "half": np.array([0.1, 65504], dtype=np.float16),
    "mask": np.array([True, False]),
    "scalar": np.float64(3.25) * np.ones(()),
    "empty": np.zeros((0, 3), dtype=np.uint8),
    "strided": np.arange(24, dtype=np.int64).reshape(4, 6)[::2, ::-1],
}


def put(store, array, **options):
    return asyncio.run(store.put(array, **({"owner": "worker-0"} | options)))


def get(store, handle):
    return asyncio.run(store.get(handle))


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_comes_back_bit_for_bit(store, name):
    array = ARRAYS[name]
    back = get(store, put(store, array))
    assert back.dtype == array.dtype and back.shape == array.shape
    assert back.tobytes() == array.tobytes()


def test_several_mebibytes_come_back_bit_for_bit(store):
    array = np.random.default_rng(0).integers(0, 256, 5 << 20, dtype=np.uint8)
    assert np.array_equal(get(store, put(store, array)), array)


def test_what_comes_back_cannot_be_written_to(store):
    back = get(store, put(store, np.zeros(3)))
    with pytest.raises(ValueError, match="read-only"):
        back[0] = 1


def test_later_changes_to_the_array_do_not_reach_the_store(store):
    array = np.zeros(3)
    handle = put(store, array)
    array[:] = 9
    assert np.array_equal(get(store, handle), np.zeros(3))


def test_a_handle_is_small_and_survives_pickling(store):
    handle = put(store, np.zeros((1000, 1000), np.float32))
    blob = pickle.dumps(handle)
    assert len(blob) < 512
    assert np.array_equal(get(store, pickle.loads(blob)), np.zeros((1000, 1000), np.float32))


def test_rows_read_a_slice_of_the_first_axis(store):
    array = np.arange(12).reshape(4, 3)
    handle = dataclasses.replace(put(store, array), rows=(1, 3))
    assert np.array_equal(get(store, handle), array[1:3])


def test_rows_outside_the_array_are_an_error_with_both_numbers(store):
    handle = dataclasses.replace(put(store, np.zeros(4)), rows=(2, 9))
    with pytest.raises(StoreError, match="rows 2:9 of 4"):
        get(store, handle)


def test_get_after_release_raises_and_names_the_handle(store):
    handle = put(store, np.zeros(4))
    assert asyncio.run(store.release([handle])) == 1
    with pytest.raises(StoreError, match=handle.key):
        get(store, handle)


def test_releasing_twice_is_not_an_error(store):
    handle = put(store, np.zeros(4))
    assert asyncio.run(store.release([handle, handle])) == 1
    assert asyncio.run(store.release([handle])) == 0


def test_an_unknown_handle_raises(store):
    handle = put(store, np.zeros(4))
    unknown = dataclasses.replace(handle, key=handle.key[:-1] + "?")
    with pytest.raises(StoreError, match="never put"):
        get(store, unknown)


def test_a_handle_of_another_store_is_refused(store):
    handle = dataclasses.replace(put(store, np.zeros(4)), store="other/store")
    with pytest.raises(StoreError, match="belongs to other/store"):
        get(store, handle)
    with pytest.raises(StoreError, match="belongs to other/store"):
        asyncio.run(store.release([handle]))


def test_a_payload_expires_after_its_time(store, clock):
    handle = put(store, np.ones(4), ttl_s=10.0)
    forever = put(store, np.ones(2))
    clock.advance(9.0)
    assert np.array_equal(get(store, handle), np.ones(4))
    clock.advance(1.5)
    with pytest.raises(StoreError, match=handle.key):
        get(store, handle)
    assert np.array_equal(get(store, forever), np.ones(2))


def test_an_expired_payload_is_freed_without_being_read(store, clock):
    put(store, np.ones(4), ttl_s=10.0)
    put(store, np.ones(4), ttl_s=20.0)
    clock.advance(15.0)
    assert asyncio.run(store.stats()).items == 1
    clock.advance(15.0)
    assert asyncio.run(store.stats()).items == 0


def test_releasing_what_has_expired_counts_nothing(store, clock):
    handle = put(store, np.ones(4), ttl_s=10.0)
    clock.advance(11.0)
    assert asyncio.run(store.release([handle])) == 0


def test_an_owner_is_released_with_all_it_put_and_nobody_else(store):
    lost = [put(store, np.zeros(n), owner="worker-1") for n in (1, 2)]
    kept = put(store, np.zeros(3), owner="worker-10")
    assert asyncio.run(store.release_owner("worker-1")) == 2
    assert asyncio.run(store.release_owner("worker-1")) == 0
    for handle in lost:
        with pytest.raises(StoreError):
            get(store, handle)
    assert get(store, kept).shape == (3,)


def test_stats_count_items_and_bytes(store):
    handles = [put(store, np.zeros(n, np.float32)) for n in (10, 20)]
    stats = asyncio.run(store.stats())
    assert (stats.items, stats.bytes) == (2, 120)
    asyncio.run(store.release(handles[:1]))
    stats = asyncio.run(store.stats())
    assert (stats.items, stats.bytes) == (1, 80)


def test_close_frees_everything_and_is_idempotent(store):
    handle = put(store, np.zeros(4))
    asyncio.run(store.close())
    asyncio.run(store.close())
    assert asyncio.run(store.stats()).items == 0
    with pytest.raises(StoreError):
        get(store, handle)
    with pytest.raises(StoreError, match="closed"):
        put(store, np.zeros(4))


def test_objects_are_refused_because_nothing_is_unpickled(store):
    with pytest.raises(StoreError, match="dtype object"):
        put(store, np.array([{}], dtype=object))


def test_a_wrong_checksum_is_found_on_a_whole_read(store):
    handle = put(store, np.arange(4))
    wrong = dataclasses.replace(handle, checksum=handle.checksum ^ 1)
    with pytest.raises(StoreError, match=f"{handle.key}.*damaged"):
        get(store, wrong)


def test_a_wrong_shape_or_dtype_is_found(store):
    handle = put(store, np.arange(4, dtype=np.int32))
    for change in ({"shape": (5,)}, {"dtype": "<f8"}):
        with pytest.raises(StoreError, match=handle.key):
            get(store, dataclasses.replace(handle, **change))


def test_many_at_once_do_not_mix(store):
    async def one(n):
        handle = await store.put(np.full(n + 1, n), owner=f"worker-{n % 3}")
        return np.array_equal(await store.get(handle), np.full(n + 1, n))

    async def all_of_them():
        return await asyncio.gather(*(one(n) for n in range(50)))

    assert all(asyncio.run(all_of_them()))
