"""The components of gsm8k keep the promises of their kinds."""

from axisrl.testing import DatasetSuite, EnvSuite, PluginSuite, RewardSuite, VerifierSuite
from axisrl_gsm8k.conformance import CASES


class TestPlugin(PluginSuite):
    plugin = "gsm8k"


class TestEnvs(EnvSuite):
    cases = CASES


class TestVerifiers(VerifierSuite):
    cases = CASES


class TestRewards(RewardSuite):
    cases = CASES


class TestDatasets(DatasetSuite):
    cases = CASES
