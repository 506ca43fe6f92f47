"""The components of grpo keep the promises of their kinds."""

from axisrl.testing import AdvantageSuite, LossSuite, PluginSuite
from axisrl_grpo.conformance import CASES


class TestPlugin(PluginSuite):
    plugin = "grpo"


class TestAdvantages(AdvantageSuite):
    cases = CASES


class TestLosses(LossSuite):
    cases = CASES
