'''Conformance suites: what each kind of component promises, as tests that a plugin inherits.

A plugin names sample inputs once, in ``axisrl_<name>/conformance.py``::

    """Inputs with which the components of this plugin are tried."""

    from axisrl.testing.cases import EnvCase, VerifierCase
    from axisrl.types import Task

    _TASK = Task(id="sum", data={"question": "1 + 1?", "answer": "2"})

    CASES = [
        EnvCase(use="sums/env", task=_TASK, actions=("2",), required=("question",)),
        VerifierCase(use="sums/exact", task=_TASK, gold=("2",), wrong=("3", "two")),
    ]

Its ``tests/test_conformance.py`` inherits a suite a kind, and pytest runs every check on every
case::

    from axisrl.testing import EnvSuite, PluginSuite, VerifierSuite
    from axisrl_sums.conformance import CASES

    class TestPlugin(PluginSuite):
        plugin = "sums"

    class TestEnv(EnvSuite):
        cases = CASES

    class TestVerifier(VerifierSuite):
        cases = CASES

``axisrl plugins check sums`` runs the same checks without pytest (:mod:`axisrl.testing.check`).

A check is a function of one :class:`Subject`; its name is the promise. It raises
:class:`CheckFailed`, saying which promise broke and by how much, or :class:`CheckSkipped`, saying
why it cannot be tried. A kind with own ideas adds them: ``checks = (*EnvSuite.checks, my_check)``.

The CPU stand-ins for engine, trainer, env and clock are :mod:`axisrl.testing.fakes`; pytest
fixtures come with ``pytest_plugins = ["axisrl.testing.fixtures"]``. Nothing here is loaded by
installing axisrl: there is no ``pytest11`` entry point. torch is imported only by the checks of
losses, corrections, engines and trainers.
'''

from axisrl.testing.advantage import AdvantageSuite
from axisrl.testing.cases import (
    AdvantageCase,
    Case,
    CorrectionCase,
    CorrectionPoint,
    DatasetCase,
    EngineCase,
    EnvCase,
    HandleStoreCase,
    LoggerCase,
    LossCase,
    LossPoint,
    ModelCase,
    PackerCase,
    RewardCase,
    ServiceCall,
    ServiceCase,
    TrainerCase,
    VerifierCase,
)
from axisrl.testing.correction import CorrectionSuite
from axisrl.testing.dataset import DatasetSuite
from axisrl.testing.engine import EngineSuite
from axisrl.testing.env import EnvSuite
from axisrl.testing.handles import HandleStoreSuite
from axisrl.testing.harness import (
    CheckFailed,
    CheckSkipped,
    Subject,
    Suite,
    require,
    require_close,
    run,
)
from axisrl.testing.loss import LossSuite
from axisrl.testing.metrics import LoggerSuite
from axisrl.testing.model import ModelSuite
from axisrl.testing.packer import PackerSuite
from axisrl.testing.plugin import PluginSuite
from axisrl.testing.reward import RewardSuite
from axisrl.testing.service import ServiceSuite
from axisrl.testing.trainer import TrainerSuite
from axisrl.testing.verifier import VerifierSuite

__all__ = [
    "AdvantageCase",
    "AdvantageSuite",
    "Case",
    "CheckFailed",
    "CheckSkipped",
    "CorrectionCase",
    "CorrectionPoint",
    "CorrectionSuite",
    "DatasetCase",
    "DatasetSuite",
    "EngineCase",
    "EngineSuite",
    "EnvCase",
    "EnvSuite",
    "HandleStoreCase",
    "HandleStoreSuite",
    "LoggerCase",
    "LoggerSuite",
    "LossCase",
    "LossPoint",
    "LossSuite",
    "ModelCase",
    "ModelSuite",
    "PackerCase",
    "PackerSuite",
    "PluginSuite",
    "RewardCase",
    "RewardSuite",
    "ServiceCall",
    "ServiceCase",
    "ServiceSuite",
    "Subject",
    "Suite",
    "TrainerCase",
    "TrainerSuite",
    "VerifierCase",
    "VerifierSuite",
    "require",
    "require_close",
    "run",
]
