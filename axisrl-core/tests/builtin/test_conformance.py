"""The core's own components keep the promises of their kinds."""

import asyncio
import dataclasses

import pytest

from axisrl.builtin.conformance import CASES
from axisrl.testing import (
    DatasetSuite,
    HandleStoreSuite,
    LoggerSuite,
    PackerSuite,
    PluginSuite,
    RewardSuite,
)

LOCAL_STORES = [case for case in CASES if case.use != "core/ray"]
RAY_STORES = [case for case in CASES if case.use == "core/ray"]


class TestPlugin(PluginSuite):
    plugin = "core"


class TestPackers(PackerSuite):
    cases = CASES


class TestStores(HandleStoreSuite):
    cases = LOCAL_STORES


class TestRewards(RewardSuite):
    cases = CASES


class TestDatasets(DatasetSuite):
    cases = CASES


class TestLoggers(LoggerSuite):
    cases = CASES


class Shared:
    """One Ray store for all checks, since making its actors takes seconds; ``close`` empties it."""

    def __init__(self, store):
        self._store = store
        self._handles = []

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def put(self, payload, **options):
        self._handles.append(await self._store.put(payload, **options))
        return self._handles[-1]

    async def close(self):
        await self._store.release(self._handles)


@pytest.fixture(scope="module")
def ray_store(local_ray, tmp_path_factory):
    (case,) = RAY_STORES
    store = HandleStoreSuite.subject(case, tmp_path_factory.mktemp("run")).build()
    TestRayStores.store = store
    yield
    asyncio.run(store.close())


@pytest.mark.usefixtures("ray_store")
class TestRayStores(HandleStoreSuite):
    cases = RAY_STORES

    @classmethod
    def subject(cls, case, work_dir):
        subject = super().subject(case, work_dir)
        return dataclasses.replace(subject, builder=lambda ref, context: Shared(cls.store))
