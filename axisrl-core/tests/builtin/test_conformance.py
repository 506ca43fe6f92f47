"""The core's own components keep the promises of their kinds."""

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


@pytest.mark.usefixtures("local_ray")
class TestRayStores(HandleStoreSuite):
    cases = RAY_STORES
