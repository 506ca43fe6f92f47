"""The components of icepop keep the promises of their kinds."""

from axisrl.testing import CorrectionSuite, PluginSuite
from axisrl_icepop.conformance import CASES


class TestPlugin(PluginSuite):
    plugin = "icepop"


class TestCorrections(CorrectionSuite):
    cases = CASES
