"""Descriptors: what a plugin says about its components before any of them is imported.

A registration hook returns these frozen dataclasses; ``target`` stays a ``"module:attr"`` string
until the component is built. Subclasses add only facts the core must know before the import. This
module imports nothing of axisrl.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal[
    "env",
    "verifier",
    "reward",
    "advantage",
    "loss",
    "correction",
    "packer",
    "store",
    "blackbox",
    "engine",
    "trainer",
    "dataset",
    "logger",
    "model",
    "service",
    "recipe",
    "command",
    "health",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """One thing a plugin offers, known as ``<plugin>/<name>``."""

    name: str
    """Local name: lower-case letters, digits, dashes."""
    target: str
    """``"package.module:attr"``, imported when the component is built."""
    config: str | None = None
    """``"package.module:ConfigClass"``, a frozen dataclass on :class:`axisrl.config.base.Config`;
    None takes no options."""
    summary: str = ""
    """One line for ``axisrl plugins show``."""
    extras: tuple[str, ...] = ()
    """Extras of the plugin's distribution that must be installed for this component."""
    modules: tuple[str, ...] = ()
    """Importable modules those extras provide; probed without importing."""
    version: int = 1
    """Meaning of its output: scores are comparable only within one version (``gsm8k/math@1``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvComponent(Component):
    """An :class:`axisrl.protocols.Env`."""

    max_turns_hint: int = 1
    needs_network: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifierComponent(Component):
    """An :class:`axisrl.protocols.Verifier`."""

    deterministic: bool = True
    sandboxed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardComponent(Component):
    """An :class:`axisrl.protocols.Reward`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageComponent(Component):
    """An :class:`axisrl.protocols.Advantage`."""

    group_relative: bool = True
    needs_values: bool = False
    """It is computed from a value model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossComponent(Component):
    """An :class:`axisrl.protocols.Loss`."""

    trains: Literal["policy", "value"] = "policy"
    """Which model it belongs to: ``loss`` or ``value.loss`` in the configuration."""
    supervised: bool = False
    """It reads log-probabilities alone, so it can learn from texts that nobody sampled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CorrectionComponent(Component):
    """An :class:`axisrl.protocols.Correction`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackerComponent(Component):
    """An :class:`axisrl.protocols.Packer`."""

    supports_tree: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class HandleStoreComponent(Component):
    """An :class:`axisrl.protocols.HandleStore`."""

    reach: Literal["process", "machine", "cluster"] = "process"
    """How far a handle can travel and still be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlackboxComponent(Component):
    """An :class:`axisrl.protocols.BlackboxAdaptor`."""

    harness: str = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineComponent(Component):
    """An :class:`axisrl.protocols.RolloutEngine`."""

    transports: tuple[str, ...] = ()
    """Weight-update transports it can receive."""
    supports_routing_capture: bool = False
    """It is an :class:`axisrl.protocols.RoutingEngine`: ``rollout.routing`` can be used."""
    scores: bool = False
    """It is an :class:`axisrl.protocols.ScoringEngine`: it can serve a teacher."""
    offloads: bool = False
    """It is an :class:`axisrl.protocols.OffloadingEngine`: it can share its GPU with trainers."""
    spans: bool = False
    """It is an :class:`axisrl.protocols.SpanningEngine`: ``placement.engine_nodes`` can be used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerComponent(Component):
    """An :class:`axisrl.protocols.TrainerBackend`."""

    transports: tuple[str, ...] = ()
    """Weight-update transports it can send."""
    data_parallel: bool = False
    """It is an :class:`axisrl.protocols.DataParallelTrainer`: several ranks can share the
    batches."""
    offloads: bool = False
    """It is an :class:`axisrl.protocols.OffloadingTrainer`: it can share its GPU with engines."""
    replays_routing: bool = False
    """It is an :class:`axisrl.protocols.ReplayingTrainer`: ``rollout.routing`` can be used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetComponent(Component):
    """An :class:`axisrl.protocols.TaskDataset`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggerComponent(Component):
    """An :class:`axisrl.protocols.MetricLogger`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelComponent(Component):
    """An :class:`axisrl.protocols.ModelSource`; ``model: <name>`` in a config finds it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceComponent(Component):
    """An :class:`axisrl.protocols.Service`; ``services: {name: {use: ...}}`` in a config starts
    it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeComponent(Component):
    """A runnable configuration. ``target`` is ``"package:path/in/package.yaml"``: data, not
    code."""

    smoke: str | None = None
    """``"package:path.yaml"`` laid over the recipe by ``--smoke``: the same job in seconds, on a
    CPU."""
    preset: bool = False
    """A few settings for other recipes (``--config plugin/preset``), not a run of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandComponent(Component):
    """A click command, run as ``axisrl x <plugin> <name>``."""

    help: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthComponent(Component):
    """A callable without arguments that returns :class:`axisrl.plugins.Finding` for ``axisrl
    doctor``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRef:
    """What crosses processes instead of an object: which component, with which options."""

    kind: Kind
    use: str
    """Qualified or bare id, optionally with ``@version``."""
    options: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KindInfo:
    """How one kind is registered."""

    hook: str
    descriptor: type[Component]


KINDS: dict[Kind, KindInfo] = {
    "env": KindInfo("axisrl_envs", EnvComponent),
    "verifier": KindInfo("axisrl_verifiers", VerifierComponent),
    "reward": KindInfo("axisrl_rewards", RewardComponent),
    "advantage": KindInfo("axisrl_advantages", AdvantageComponent),
    "loss": KindInfo("axisrl_losses", LossComponent),
    "correction": KindInfo("axisrl_corrections", CorrectionComponent),
    "packer": KindInfo("axisrl_packers", PackerComponent),
    "store": KindInfo("axisrl_handle_stores", HandleStoreComponent),
    "blackbox": KindInfo("axisrl_blackbox_adaptors", BlackboxComponent),
    "engine": KindInfo("axisrl_rollout_engines", EngineComponent),
    "trainer": KindInfo("axisrl_trainer_backends", TrainerComponent),
    "dataset": KindInfo("axisrl_datasets", DatasetComponent),
    "logger": KindInfo("axisrl_metric_loggers", LoggerComponent),
    "model": KindInfo("axisrl_models", ModelComponent),
    "service": KindInfo("axisrl_services", ServiceComponent),
    "recipe": KindInfo("axisrl_recipes", RecipeComponent),
    "command": KindInfo("axisrl_commands", CommandComponent),
    "health": KindInfo("axisrl_health_checks", HealthComponent),
}
