import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from axisrl.builtin.memory_handles import Ledger, MemoryHandleStore
from axisrl.config.base import NoConfig


def test_two_stores_share_nothing(context):
    one, other = (MemoryHandleStore(NoConfig(), context) for _ in range(2))
    asyncio.run(one.put(np.zeros(3), owner="w"))
    assert asyncio.run(other.stats()).items == 0


def test_an_array_held_by_a_reader_survives_its_release(context):
    store = MemoryHandleStore(NoConfig(), context)
    handle = asyncio.run(store.put(np.arange(3), owner="w"))
    back = asyncio.run(store.get(handle))
    asyncio.run(store.release([handle]))
    assert back.tolist() == [0, 1, 2]


def test_a_payload_with_no_time_to_live_is_gone_at_once(clock):
    ledger = Ledger(clock)
    ledger.add("a", 1, owner="w", size=1, ttl_s=0.0)
    assert ledger.get("a") is None


def test_threads_of_one_process_may_share_a_store():
    ticks = itertools.count()
    ledger = Ledger(lambda: float(next(ticks)))

    def work(name):
        for at in range(300):
            ledger.add(f"{name}-{at}", at, owner=name, size=1, ttl_s=10.0)
            ledger.get(f"{name}-{at - 1}")
            ledger.stats()
        return ledger.drop_owner(name)

    with ThreadPoolExecutor(4) as pool:
        dropped = list(pool.map(work, "abcd"))
    assert all(count <= 10 for count in dropped) and ledger.stats() == (0, 0)


def test_expiry_at_clock_zero_is_not_mistaken_for_no_expiry():
    now = [-5.0]
    ledger = Ledger(lambda: now[0])
    ledger.add("a", 1, owner="w", size=1, ttl_s=5.0)
    ledger.add("b", 2, owner="w", size=1, ttl_s=9.0)
    now[0] = 1.0
    assert (ledger.get("a"), ledger.get("b")) == (None, 2)
