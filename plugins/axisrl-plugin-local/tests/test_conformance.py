"""The components of local keep the promises of their kinds."""

from axisrl.testing import EngineSuite, ModelSuite, PluginSuite, TrainerSuite
from axisrl_local.conformance import CASES


class TestPlugin(PluginSuite):
    plugin = "local"


class TestModels(ModelSuite):
    cases = CASES


class TestEngines(EngineSuite):
    cases = CASES


class TestTrainers(TrainerSuite):
    cases = CASES
