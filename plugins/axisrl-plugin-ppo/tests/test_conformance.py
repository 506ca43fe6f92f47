"""The components of ppo keep the promises of their kinds."""

from axisrl.testing import AdvantageSuite, LossSuite, PluginSuite
from axisrl_ppo.conformance import CASES


class TestPlugin(PluginSuite):
    plugin = "ppo"


class TestAdvantages(AdvantageSuite):
    cases = CASES


class TestLosses(LossSuite):
    cases = CASES
