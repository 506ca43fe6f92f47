import asyncio
import dataclasses
import multiprocessing
import os
import resource
import signal
import stat

import numpy as np
import pytest

from axisrl.builtin import shm_handles
from axisrl.builtin.config import SharedMemoryConfig
from axisrl.builtin.shm_handles import SharedMemoryHandleStore
from axisrl.errors import StoreError, StoreLost
from axisrl.types import BuildContext

spawn = multiprocessing.get_context("spawn")


def build(folder, run_dir, clock=None):
    options = {} if clock is None else {"clock": clock}
    return SharedMemoryHandleStore(
        SharedMemoryConfig(folder=str(folder)), BuildContext(run_dir=run_dir, **options)
    )


def putter(connection, folder, run_dir):
    """Puts two arrays and then waits to be killed."""
    store = build(folder, run_dir)
    arrays = [np.arange(100_000, dtype=np.int64), np.full(4, np.nan, np.float32)]
    connection.send([asyncio.run(store.put(array, owner="worker-1")) for array in arrays])
    connection.recv()


def reader(connection, folder, run_dir):
    """Answers handles with the bytes behind them, or with the error."""
    store = build(folder, run_dir)
    for handle in iter(connection.recv, None):
        try:
            connection.send(asyncio.run(store.get(handle)).tobytes())
        except StoreError as problem:
            connection.send(problem)


def start(target, *args):
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=target, args=(theirs, *args), daemon=True)
    process.start()
    return process, ours


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join()


@pytest.fixture
def store(tmp_path):
    store = build(tmp_path, tmp_path / "run")
    yield store
    asyncio.run(store.close())


def folder_of(base):
    (folder,) = base.glob("axisrl-*")
    return folder


def test_another_process_reads_the_same_bits_and_sees_the_release(store, tmp_path):
    array = np.random.default_rng(1).normal(size=(300, 70)).astype(np.float32)
    handle = asyncio.run(store.put(array, owner="worker-0"))
    _, connection = start(reader, tmp_path, tmp_path / "run")
    connection.send(handle)
    assert connection.recv() == array.tobytes()
    connection.send(dataclasses.replace(handle, rows=(2, 5)))
    assert connection.recv() == array[2:5].tobytes()
    asyncio.run(store.release([handle]))
    connection.send(handle)
    error = connection.recv()
    connection.send(None)
    assert isinstance(error, StoreError) and handle.key in str(error)


def test_what_a_killed_worker_put_stays_until_its_owner_is_released(store, tmp_path):
    process, connection = start(putter, tmp_path, tmp_path / "run")
    first, second = connection.recv()
    kill(process)
    assert np.array_equal(asyncio.run(store.get(first)), np.arange(100_000))
    assert asyncio.run(store.release_owner("worker-1")) == 2
    with pytest.raises(StoreError):
        asyncio.run(store.get(second))


def test_what_a_killed_worker_had_begun_to_write_is_released_with_the_rest(
    store, tmp_path, monkeypatch
):
    def killed(draft, whole):
        raise KeyboardInterrupt  # nothing after it is done, as of a process that is killed

    monkeypatch.setattr(os, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(store.put(np.ones(3), owner="worker-1"))
    assert len(list(folder_of(tmp_path).glob("*.part"))) == 1
    assert asyncio.run(store.release_owner("worker-1")) == 1
    assert not list(folder_of(tmp_path).glob("*.part"))


def test_a_resumed_run_starts_without_what_the_killed_one_left(tmp_path):
    process, connection = start(putter, tmp_path, tmp_path / "run")
    connection.recv()
    kill(process)
    assert len(list(folder_of(tmp_path).iterdir())) == 3
    store = build(tmp_path, tmp_path / "run")
    assert asyncio.run(store.stats()).items == 0
    asyncio.run(store.close())


def test_a_killed_run_that_nobody_resumes_is_cleared_by_the_next_run(tmp_path):
    process, connection = start(putter, tmp_path, tmp_path / "run-a")
    connection.recv()
    kill(process)
    store = build(tmp_path, tmp_path / "run-b")
    assert len(list(tmp_path.glob("axisrl-*"))) == 1
    asyncio.run(store.close())


def test_a_living_run_is_left_alone_by_other_runs_and_its_own_workers(store, tmp_path):
    handle = asyncio.run(store.put(np.ones(3), owner="worker-0"))
    other = build(tmp_path, tmp_path / "other-run")
    worker = build(tmp_path, tmp_path / "run")
    assert np.array_equal(asyncio.run(worker.get(handle)), np.ones(3))
    asyncio.run(other.close())
    assert np.array_equal(asyncio.run(store.get(handle)), np.ones(3))


def test_close_leaves_no_file(tmp_path):
    store = build(tmp_path, tmp_path / "run")
    asyncio.run(store.put(np.zeros(9), owner="w"))
    asyncio.run(store.close())
    assert list(tmp_path.glob("axisrl-*")) == []


def test_putting_after_the_driver_closed_the_run_names_the_folder(store, tmp_path):
    worker = build(tmp_path, tmp_path / "run")
    asyncio.run(store.close())
    with pytest.raises(StoreLost, match=r"lost its folder .*axisrl-"):
        asyncio.run(worker.put(np.zeros(3), owner="w"))
    asyncio.run(worker.close())


def test_a_get_maps_the_file_instead_of_copying_it(store):
    array = np.zeros(1 << 20, np.uint8)
    handle = asyncio.run(store.put(array, owner="w"))
    back = asyncio.run(store.get(handle))
    with open("/proc/self/maps") as maps:
        assert any(handle.key in line for line in maps)
    asyncio.run(store.release([handle]))
    assert not back.any()


def test_a_full_disk_is_an_error_that_names_the_folder_and_the_sizes(store, tmp_path):
    asyncio.run(store.put(np.zeros(10, np.uint8), owner="w"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(StoreError) as caught:
            asyncio.run(store.put(np.zeros(5000, np.uint8), owner="w"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    message = str(caught.value)
    assert str(folder_of(tmp_path)) in message
    assert "5000 bytes" in message and "holds 10" in message
    assert asyncio.run(store.stats()).items == 1
    assert not list(folder_of(tmp_path).glob("*.part"))


def test_a_flipped_byte_on_disk_is_found(store, tmp_path):
    handle = asyncio.run(store.put(np.arange(10, dtype=np.uint8), owner="w"))
    with (folder_of(tmp_path) / handle.key).open("r+b") as file:
        file.write(b"\x07")
    with pytest.raises(StoreError, match="damaged"):
        asyncio.run(store.get(handle))


def test_a_cut_file_is_found_before_it_is_mapped(store, tmp_path):
    handle = asyncio.run(store.put(np.arange(10, dtype=np.uint8), owner="w"))
    os.truncate(folder_of(tmp_path) / handle.key, 4)
    with pytest.raises(StoreError, match="4 bytes instead of 10"):
        asyncio.run(store.get(handle))


@pytest.mark.parametrize("key", ["../secret", "/etc/passwd", "lock", ""])
def test_a_key_never_leads_out_of_the_folder(store, tmp_path, key):
    (tmp_path / "secret").write_bytes(b"xyz")
    handle = asyncio.run(store.put(np.zeros(3, np.uint8), owner="w"))
    forged = dataclasses.replace(handle, key=key)
    with pytest.raises(StoreError):
        asyncio.run(store.get(forged))
    assert asyncio.run(store.release([forged])) == 0
    assert (tmp_path / "secret").exists()


def test_only_the_user_may_look_into_the_folder(store, tmp_path):
    assert stat.S_IMODE(folder_of(tmp_path).stat().st_mode) == 0o700


def test_a_folder_that_is_a_link_is_refused(tmp_path):
    store = build(tmp_path, tmp_path / "run")
    name = folder_of(tmp_path)
    asyncio.run(store.close())
    (tmp_path / "elsewhere").mkdir()
    name.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="belongs to somebody else"):
        build(tmp_path, tmp_path / "run")


def test_a_write_that_is_not_finished_is_not_counted(store, tmp_path):
    (folder_of(tmp_path) / "half.part").write_bytes(b"12345")
    assert asyncio.run(store.stats()).items == 0


def test_expired_files_go_at_a_later_put_of_any_process(tmp_path, clock):
    one = build(tmp_path, tmp_path / "run", clock)
    other = build(tmp_path, tmp_path / "run", clock)
    asyncio.run(one.put(np.zeros(3), owner="w", ttl_s=1.0))
    clock.advance(shm_handles._SWEEP_S + 1)
    asyncio.run(other.put(np.zeros(3), owner="w"))
    assert len([path for path in folder_of(tmp_path).iterdir() if path.name != "lock"]) == 1
    asyncio.run(other.close())
    asyncio.run(one.close())
