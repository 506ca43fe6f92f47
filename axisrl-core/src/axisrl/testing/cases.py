"""Sample inputs with which a plugin's components are tried: the contents of its ``CASES``.

A plugin keeps them in ``axisrl_<name>/conformance.py``; see :mod:`axisrl.testing`. Plain data: no
case imports or builds anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from axisrl.plugins.components import Kind
from axisrl.types import Task, Verdict


@dataclass(frozen=True, kw_only=True)
class Case:
    """A component, as a config would name it, and what it is tried with."""

    kind: ClassVar[Kind]

    use: str
    """Qualified id: ``"gsm8k/math"``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The component's own options, as YAML would hold them; ``{folder}`` in a text is the folder
    of ``files``."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Name -> content of text files that are there before the component is built."""
    services: Mapping[str, Any] = field(default_factory=dict)
    """Named services its ``BuildContext`` gets; a ``ComponentRef`` of a service becomes a client of
    it."""
    label: str = ""
    """Tells two cases of one component apart."""
    needs_network: bool = False
    """It would download something: named, so that the component is not forgotten, and not tried."""
    limit_s: float = 60.0
    """Longest time of one asynchronous check."""

    @property
    def title(self) -> str:
        """Id, with the label where there is one."""
        return f"{self.use} ({self.label})" if self.label else self.use


@dataclass(frozen=True, kw_only=True)
class EnvCase(Case):
    """One episode."""

    kind = "env"

    task: Task
    actions: tuple[str, ...]
    """Texts of the policy's turns; the last one ends the episode."""
    required: tuple[str, ...] = ()
    """Fields of ``task.data`` without which ``reset`` must raise."""


@dataclass(frozen=True, kw_only=True)
class VerifierCase(Case):
    """One task with answers of known worth."""

    kind = "verifier"

    task: Task
    gold: tuple[str, ...]
    """Answers that score 1."""
    wrong: tuple[str, ...]
    """Answers that score less and do not pass."""
    required: tuple[str, ...] = ()
    """Fields of ``task.data`` without which no score may come back."""
    answer_limit_s: float = 5.0
    """Longest time for one answer, however hostile."""


@dataclass(frozen=True, kw_only=True)
class RewardCase(Case):
    """A good and a worse rollout of two turns."""

    kind = "reward"

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    worse: Mapping[str, Verdict] = field(default_factory=dict)
    """Verdicts of the rollout that earns less."""
    tokens: int = 0
    """Tokens the policy sampled in the good rollout."""
    worse_tokens: int = 0
    """And in the one that earns less."""
    env_parts: Mapping[str, float] = field(default_factory=dict)
    """What the env gave in the first turn of either."""
    additive: bool = True
    """The parts sum to the total."""


@dataclass(frozen=True, kw_only=True)
class AdvantageCase(Case):
    """Groups are made up by the suite."""

    kind = "advantage"


@dataclass(frozen=True, kw_only=True)
class LossPoint:
    """A known value of a loss: one trained token, base log-probability 0."""

    log_ratio: float
    advantage: float
    loss: float
    gradient: float | None = None
    """Derivative by the token's log-probability."""


@dataclass(frozen=True, kw_only=True)
class LossCase(Case):
    """Batches are made up by the suite."""

    kind = "loss"

    points: tuple[LossPoint, ...] = ()
    """Reference numbers, from a paper or worked out by hand."""
    stop_gradient: bool = False
    """The loss holds part of its value constant on purpose, so finite differences do not apply."""
    policy_gradient: bool = True
    """On policy its gradient by a trained log-probability is minus the advantage."""


@dataclass(frozen=True, kw_only=True)
class CorrectionPoint:
    """A known value of a correction: a trajectory of one trained token."""

    log_gap: float
    """Old (trainer) minus rollout log-probability."""
    weight: float = 1.0
    kept: bool = True


@dataclass(frozen=True, kw_only=True)
class CorrectionCase(Case):
    """Batches are made up by the suite."""

    kind = "correction"

    points: tuple[CorrectionPoint, ...] = ()
    """Reference numbers, from a paper or worked out by hand."""


@dataclass(frozen=True, kw_only=True)
class PackerCase(Case):
    """Samples are made up by the suite."""

    kind = "packer"

    rounds: int = 40
    """Random inputs a check tries."""


@dataclass(frozen=True, kw_only=True)
class HandleStoreCase(Case):
    """Payloads are made up by the suite."""

    kind = "store"

    fake_clock: bool = True
    """Expiry follows ``context.clock``; otherwise the suite waits a fraction of a second."""
    other_process: bool = True
    """A bare child process can build the store too; False where it has to join a cluster first."""
    large: bool = False
    """Also try 256 MiB."""


@dataclass(frozen=True, kw_only=True)
class EngineCase(Case):
    """A model, and the trainer whose weights it must be able to take."""

    kind = "engine"

    model: str = "local/tiny"
    device: str = "cpu"
    trainer: str = "local/trainer"
    trainer_options: Mapping[str, Any] = field(default_factory=dict)
    max_context: int = 0
    """Most tokens of prompt and answer under ``options``; 0 does not try the limit."""
    tolerance: float = 1e-5
    """Between the engine's and the trainer's log-probabilities."""


@dataclass(frozen=True, kw_only=True)
class TrainerCase(Case):
    """A model to train for a few steps."""

    kind = "trainer"

    model: str = "local/tiny"
    device: str = "cpu"
    tolerance: float = 1e-5
    """Between log-probabilities that must agree."""


@dataclass(frozen=True, kw_only=True)
class LoggerCase(Case):
    """Steps are made up by the suite."""

    kind = "logger"

    read: Callable[[Path], Mapping[int, Mapping[str, float]]] | None = None
    """Reads back what a run folder holds: step -> name -> value."""
    stable_state: tuple[str, ...] = ()
    """Keys of ``state_dict`` that must be the same after a resume (a run id)."""


@dataclass(frozen=True, kw_only=True)
class DatasetCase(Case):
    """Any options under which the dataset has tasks."""

    kind = "dataset"

    fields: tuple[str, ...] = ()
    """Keys that every task's ``data`` has."""
    sample: int = 200
    """First so many tasks are looked at."""


@dataclass(frozen=True, kw_only=True)
class ModelCase(Case):
    """A model; it is fetched several times over, so never from a network."""

    kind = "model"


@dataclass(frozen=True, kw_only=True)
class ServiceCall:
    """One call of a service and what it must answer."""

    method: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    answer: Any = None


@dataclass(frozen=True, kw_only=True)
class ServiceCase(Case):
    """A service that always answers alike."""

    kind = "service"

    calls: tuple[ServiceCall, ...]
    refused: tuple[ServiceCall, ...] = ()
    """Calls that must raise (a query that is no text, an id that is not there)."""
