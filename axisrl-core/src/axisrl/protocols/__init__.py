"""The contracts a plugin's components satisfy: one small file a kind, typed Protocols, no base
classes.

Constructor contract of every component: ``Target(config, context)`` with its own config dataclass
(or ``None`` where it declares none) and a :class:`axisrl.types.BuildContext`.
:mod:`axisrl.protocols.loss` and :mod:`axisrl.protocols.correction` name torch types for type
checkers only.
"""

from axisrl.protocols.advantage import Advantage
from axisrl.protocols.blackbox import AdaptorContext, BlackboxAdaptor, HarnessOutcome, ProxySession
from axisrl.protocols.correction import Correction, CorrectionResult
from axisrl.protocols.dataset import TaskDataset
from axisrl.protocols.engine import (
    Keep,
    RolloutEngine,
    RoutingEngine,
    ScoringEngine,
    SpanningEngine,
    WatchedEngine,
)
from axisrl.protocols.env import Env
from axisrl.protocols.handles import HandleStore
from axisrl.protocols.loss import Level, Loss, LossInputs, LossResult, LossStat
from axisrl.protocols.memory import (
    EnginePart,
    OffloadingEngine,
    OffloadingTrainer,
    TrainerPart,
)
from axisrl.protocols.metrics import MetricLogger, ProgressLogger
from axisrl.protocols.model import ModelSource
from axisrl.protocols.packer import Packer
from axisrl.protocols.reward import Reward
from axisrl.protocols.service import Service, ServiceClient
from axisrl.protocols.trainer import (
    DataParallelTrainer,
    ReadExperts,
    ReplayingTrainer,
    TrainerBackend,
)
from axisrl.protocols.verifier import Rollout, Verifier

__all__ = [
    "AdaptorContext",
    "Advantage",
    "BlackboxAdaptor",
    "Correction",
    "CorrectionResult",
    "DataParallelTrainer",
    "EnginePart",
    "Env",
    "HandleStore",
    "HarnessOutcome",
    "Keep",
    "Level",
    "Loss",
    "LossInputs",
    "LossResult",
    "LossStat",
    "MetricLogger",
    "ModelSource",
    "OffloadingEngine",
    "OffloadingTrainer",
    "Packer",
    "ProgressLogger",
    "ProxySession",
    "ReadExperts",
    "ReplayingTrainer",
    "Reward",
    "Rollout",
    "RolloutEngine",
    "RoutingEngine",
    "ScoringEngine",
    "Service",
    "ServiceClient",
    "SpanningEngine",
    "TaskDataset",
    "TrainerBackend",
    "TrainerPart",
    "Verifier",
    "WatchedEngine",
]
