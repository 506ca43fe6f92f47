"""The components of megatron keep the promises of their kinds."""

import importlib.util

import pytest

from axisrl.testing import PluginSuite, TrainerSuite
from axisrl_megatron.conformance import CASES


class TestPlugin(PluginSuite):
    plugin = "megatron"


@pytest.mark.skipif(importlib.util.find_spec("megatron") is None, reason="needs megatron-core")
class TestTrainer(TrainerSuite):
    cases = CASES
