"""The components of local keep the promises of their kinds."""

from axisrl.testing import EngineSuite, ModelSuite, PluginSuite, TrainerSuite
from axisrl_local.conformance import CASES

# The other model is 140 MB from a package index: its own tests fetch it where it can be had.
TINY = [case for case in CASES if case.use == "local/tiny"]


class TestPlugin(PluginSuite):
    plugin = "local"


class TestModels(ModelSuite):
    cases = TINY


class TestEngines(EngineSuite):
    cases = CASES


class TestTrainers(TrainerSuite):
    cases = CASES
