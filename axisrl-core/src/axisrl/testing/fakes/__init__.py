"""Stand-ins that run in milliseconds on a CPU: no torch, no model, no network, no real time.

Each satisfies the protocol of its kind and the constructor contract ``Target(config, context)``,
and keeps what it was given for a test to look at. They are not toys to train with: the scripted
engine does not learn.
"""

from axisrl.testing.fakes.clock import FakeClock
from axisrl.testing.fakes.engine import (
    Reply,
    ScriptedEngine,
    ScriptedEngineConfig,
    scripted_experts,
)
from axisrl.testing.fakes.env import EchoEnv, EchoEnvConfig
from axisrl.testing.fakes.service import LocalService
from axisrl.testing.fakes.tasks import CountDataset, CountDatasetConfig, ExactVerifier
from axisrl.testing.fakes.tokenizer import CharTokenizer
from axisrl.testing.fakes.trainer import ScriptedTrainer, ScriptedTrainerConfig

__all__ = [
    "CharTokenizer",
    "CountDataset",
    "CountDatasetConfig",
    "EchoEnv",
    "EchoEnvConfig",
    "ExactVerifier",
    "FakeClock",
    "LocalService",
    "Reply",
    "ScriptedEngine",
    "ScriptedEngineConfig",
    "ScriptedTrainer",
    "ScriptedTrainerConfig",
    "scripted_experts",
]
