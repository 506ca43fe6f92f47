import asyncio
import dataclasses
import os

import numpy as np
import pytest

from axisrl.config.base import NoConfig
from axisrl.errors import EnvironmentProblem, StoreError, StoreLost
from axisrl.types import BuildContext


def build(run_dir):
    from axisrl.builtin.ray_handles import RayHandleStore

    return RayHandleStore(NoConfig(), BuildContext(run_dir=run_dir))


class Worker:
    """A process of the run; runs as a Ray actor."""

    def __init__(self, run_dir):
        self.store = build(run_dir)

    def put(self, size):
        return asyncio.run(self.store.put(np.arange(size, dtype=np.int64), owner="worker-1"))

    def read(self, handle):
        return asyncio.run(self.store.get(handle)).tobytes()

    def die(self):
        os._exit(1)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("ray-run")


@pytest.fixture(scope="module")
def run_store(local_ray, run_dir):
    store = build(run_dir)
    yield store
    asyncio.run(store.close())


@pytest.fixture
def worker(run_store, run_dir):
    import ray

    actor = ray.remote(Worker).options(num_cpus=0).remote(run_dir)
    yield actor
    ray.kill(actor)


def test_arrays_travel_bit_for_bit_between_processes_and_outlive_the_one_that_put_them(
    run_store, worker
):
    import ray

    array = np.array([1.5, np.nan, -0.0], np.float32)
    ours = asyncio.run(run_store.put(array, owner="driver"))
    assert ray.get(worker.read.remote(ours)) == array.tobytes()
    theirs = ray.get(worker.put.remote(50_000))
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(worker.die.remote())
    assert np.array_equal(asyncio.run(run_store.get(theirs)), np.arange(50_000))
    assert asyncio.run(run_store.release_owner("worker-1")) == 1
    with pytest.raises(StoreError, match=theirs.key):
        asyncio.run(run_store.get(theirs))


def test_release_really_frees_the_object_store(run_store, local_ray):
    for _ in range(8):
        handle = asyncio.run(run_store.put(np.ones(25 << 20, np.uint8), owner="driver"))
        asyncio.run(run_store.release([handle]))
    spilled = [path for path in local_ray.rglob("*") if path.is_file()]
    assert spilled == []


def test_a_handle_of_a_lost_node_is_an_error_that_names_it(run_store):
    handle = asyncio.run(run_store.put(np.ones(3), owner="driver"))
    _, _, rest = handle.key.partition("-")
    lost = dataclasses.replace(handle, key=f"{'f' * 56}-{rest}")
    with pytest.raises(StoreError, match=lost.key):
        asyncio.run(run_store.get(lost))
    assert asyncio.run(run_store.release([lost])) == 0
    assert asyncio.run(run_store.release([handle])) == 1


def test_a_store_whose_processes_died_is_lost_and_says_so(tmp_path, local_ray):
    import ray

    store = build(tmp_path)
    handle = asyncio.run(store.put(np.zeros(3), owner="driver"))
    ray.kill(store._directory)  # the holders end with it

    async def again_and_again(ask, *arguments):
        while True:  # the directory ends first, then the holders
            await ask(*arguments)

    with pytest.raises(StoreLost, match="core/ray is gone"):
        asyncio.run(again_and_again(store.stats))
    with pytest.raises(StoreLost, match=handle.key):
        asyncio.run(again_and_again(store.get, handle))
    with pytest.raises(StoreLost, match="core/ray is gone on node"):
        asyncio.run(store.put(np.zeros(3), owner="driver"))
    asyncio.run(store.close())


def test_without_ray_the_error_says_what_to_use_instead(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    store = build(tmp_path)
    with pytest.raises(EnvironmentProblem, match="core/shm"):
        asyncio.run(store.put(np.zeros(3), owner="driver"))


def test_closing_after_ray_has_ended_is_not_an_error(tmp_path, monkeypatch, local_ray):
    import ray

    store = build(tmp_path)
    asyncio.run(store.put(np.zeros(3), owner="driver"))
    with monkeypatch.context() as ended:
        ended.setattr(ray, "is_initialized", lambda: False)
        ended.setattr(ray, "kill", lambda actor: pytest.fail("Ray was called after its end"))
        asyncio.run(store.close())
    ray.kill(store._directory)
