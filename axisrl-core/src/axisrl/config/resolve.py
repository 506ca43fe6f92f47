"""Finds the component behind every ``use``, validates its options, and checks what fits together.

It builds nothing. What only the built parts know (which columns a loss needs) is checked by the
runtime before the first step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, cast

from axisrl.config.overrides import origin_of
from axisrl.config.problems import Problem
from axisrl.config.schema import RunConfig, Use
from axisrl.config.shape import plain
from axisrl.config.validate import validate
from axisrl.errors import AxisrlError
from axisrl.plugins.components import (
    KINDS,
    AdvantageComponent,
    ComponentRef,
    EngineComponent,
    HandleStoreComponent,
    Kind,
    LossComponent,
    TrainerComponent,
)
from axisrl.plugins.resolve import Resolved, parse_id

if TYPE_CHECKING:
    from axisrl.plugins.manager import PluginManager


@dataclass(frozen=True, slots=True)
class UsedComponent:
    """A component of this run: the dotted key it stands under, and what was found for it."""

    path: str
    kind: Kind
    resolved: Resolved
    id: str
    """``plugin/component``, with ``@version`` where the configuration pins one."""
    options: Mapping[str, Any]
    """Plain data, every default filled in."""


def component_uses(value: Any, path: str = "", kind: str = "") -> Iterator[tuple[str, Kind, Use]]:
    """Every ``use`` in a config, in order: dotted key, kind, value. The field's name is the kind
    (``verifiers`` holds verifiers)."""
    if isinstance(value, Use):
        yield path, cast(Kind, kind if kind in KINDS else kind.removesuffix("s")), value
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            here = f"{path}.{item.name}" if path else item.name
            yield from component_uses(getattr(value, item.name), here, item.name)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from component_uses(each, f"{path}.{key}", kind)
    elif isinstance(value, tuple):
        for index, each in enumerate(value):
            yield from component_uses(each, f"{path}.{index}", kind)


def resolve(
    config: RunConfig, manager: PluginManager, origins: Mapping[str, str]
) -> tuple[UsedComponent, ...]:
    """What every ``use`` of the config stands for, its options validated.

    Activates the plugins that the components and ``plugins`` name. Errors carry the key they belong
    to and where it was set.
    """
    uses = list(component_uses(config))
    for path, _, use in uses:
        with _Located(path, origins):
            owner = parse_id(use.use, path).plugin
            manager.activate([owner] if owner else [])
    refs = [ComponentRef(kind=kind, use=use.use) for _, kind, use in uses]
    manager.activate_for(refs, config.plugins)
    return tuple(_one(path, kind, use, manager, origins) for path, kind, use in uses)


def _one(
    path: str, kind: Kind, use: Use, manager: PluginManager, origins: Mapping[str, str]
) -> UsedComponent:
    with _Located(path, origins):
        resolved = manager.find(kind, use.use, path)
        cls = manager.config_class(resolved)
    options: Any = validate(cls, use.options, path=path, origins=origins)
    pinned = "".join(use.use.partition("@")[1:])
    return UsedComponent(path, kind, resolved, resolved.id + pinned, plain(options))


class _Located:
    """Puts the key and its origin before the message of an error that passes through."""

    def __init__(self, path: str, origins: Mapping[str, str]) -> None:
        self._path, self._origin = path, origin_of(origins, f"{path}.use")

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, AxisrlError):
            prefix = "" if error.message.startswith(f"{self._path}: ") else f"{self._path}: "
            origin = f" (from {self._origin})" if self._origin else ""
            error.message = f"{prefix}{error.message}{origin}"
            error.args = (error.message,)


def check(config: RunConfig, used: Sequence[UsedComponent]) -> list[Problem]:
    """What the components' descriptors say cannot work together."""
    found = {each.path: each for each in used}
    problems = [
        *_store_problems(config, found["store"]),
        *_service_problems(config),
        *_memory_problems(config, found),
        *_routing_problems(config, found),
        *_span_problems(config, found),
    ]
    if "loss" in config.needs:
        problems += [
            *_group_problems(config, found["advantage"]),
            *_value_problems(config, found["advantage"]),
            *_loss_problems(found),
            *_supervised_problems(config, found["loss"]),
            *_engine_problems(found),
            *_rank_problems(config, found),
        ]
    return problems


def _group_problems(config: RunConfig, advantage: UsedComponent) -> Iterator[Problem]:
    descriptor = cast(AdvantageComponent, advantage.resolved.component)
    if config.rollout.group_size == 1 and descriptor.group_relative:
        yield Problem(
            "rollout.group_size",
            f"rollout.group_size 1 leaves {advantage.resolved.id} nothing to compare with: "
            "it is relative to the group",
            "set rollout.group_size to 2 or more, or use an advantage that needs no group",
        )
    elif config.rollout.min_group_size == 1 and descriptor.group_relative:
        yield Problem(
            "rollout.min_group_size",
            "rollout.min_group_size 1 lets a group shrink to one rollout, and "
            f"{advantage.resolved.id} is relative to the group",
            "set rollout.min_group_size to 2 or more",
        )


def _value_problems(config: RunConfig, advantage: UsedComponent) -> Iterator[Problem]:
    descriptor = cast(AdvantageComponent, advantage.resolved.component)
    if descriptor.needs_values and config.value is None:
        yield Problem(
            "value",
            f"advantage {advantage.resolved.id} is computed from a value model, and the run has "
            "none",
            "set value.loss (for instance value.loss=ppo/value), or use another advantage",
        )
    if config.value is not None and not descriptor.needs_values:
        yield Problem(
            "value",
            f"value has no effect: advantage {advantage.resolved.id} uses no value model",
            "remove value, or use an advantage that needs values (ppo/gae)",
        )


def _loss_problems(found: Mapping[str, UsedComponent]) -> Iterator[Problem]:
    for path, trains in (("loss", "policy"), ("value.loss", "value")):
        if path not in found:
            continue
        descriptor = cast(LossComponent, found[path].resolved.component)
        if descriptor.trains != trains:
            yield Problem(
                f"{path}.use",
                f"{path}: {found[path].resolved.id} trains the {descriptor.trains} model, "
                f"not the {trains}",
                f"choose a loss of the {trains} model",
            )


def _supervised_problems(config: RunConfig, loss: UsedComponent) -> Iterator[Problem]:
    """A supervised loss reads no advantage; of a conversation nothing was recorded at sampling."""
    name, supervised = loss.resolved.id, cast(LossComponent, loss.resolved.component).supervised
    for part in ("value", "teacher"):
        if supervised and getattr(config, part) is not None:
            yield Problem(
                part,
                f"{part} has no effect: it changes advantages, and loss {name} reads none",
                f"remove {part}, or choose another loss",
            )
    if config.mode != "train_offline" or config.offline.rollouts:
        return
    reads = [] if supervised else [("loss.use", f"loss {name}")]
    reads += [(f"corrections.{at}", use.use) for at, use in enumerate(config.corrections)]
    if config.kl.coef and config.kl.base == "rollout":
        reads.append(("kl.base", "kl.base rollout"))
    for path, what in reads:
        yield Problem(
            path,
            f"{what} needs what was recorded at sampling, and conversations were not sampled",
            "leave it out and use core/sft, or replay a run with offline.rollouts=RUN_FOLDER",
        )


def _store_problems(config: RunConfig, store: UsedComponent) -> Iterator[Problem]:
    descriptor = cast(HandleStoreComponent, store.resolved.component)
    if config.placement.kind == "ray" and descriptor.reach == "process":
        yield Problem(
            "store.use",
            f"store {store.resolved.id} stays within one process, and placement ray uses several",
            "set store=core/shm or store=core/ray, or placement=inline",
        )
    if config.placement.kind == "inline" and descriptor.reach == "cluster":
        yield Problem(
            "store.use",
            f"store {store.resolved.id} spans a cluster, and placement inline is one process",
            "set store=core/shm or store=core/memory, or placement=ray",
        )


def _service_problems(config: RunConfig) -> Iterator[Problem]:
    for name, service in config.services.items():
        if service.gpus and config.placement.kind == "inline":
            yield Problem(
                f"services.{name}.gpus",
                f"services.{name}.gpus {service.gpus:g} has no effect with placement.kind inline",
                "add placement.kind=ray, or set it to 0",
            )


def _routing_problems(config: RunConfig, found: Mapping[str, UsedComponent]) -> Iterator[Problem]:
    if not config.rollout.routing:
        return
    engine, trainer = found.get("engine"), found.get("trainer")
    replays = trainer is None or cast(TrainerComponent, trainer.resolved.component).replays_routing
    if trainer and "trainer" in config.needs and not replays:
        yield Problem(
            "rollout.routing",
            f"rollout.routing keeps the experts that the engine's router chose, and trainer "
            f"{trainer.resolved.id} would choose others by its own",
            "set rollout.routing=false, or choose a trainer that replays them",
        )
    if engine and not cast(EngineComponent, engine.resolved.component).supports_routing_capture:
        yield Problem(
            "rollout.routing",
            f"rollout.routing keeps the experts that the engine's router chose, and engine "
            f"{engine.resolved.id} cannot tell them",
            "set rollout.routing=false, or choose an engine that can",
        )


def _span_problems(config: RunConfig, found: Mapping[str, UsedComponent]) -> Iterator[Problem]:
    engine, trainer = found.get("engine"), found.get("trainer")
    nodes = config.placement.engine_nodes
    if nodes == 1 or engine is None or "engine" not in config.needs:
        return
    if not cast(EngineComponent, engine.resolved.component).spans:
        yield Problem(
            "placement.engine_nodes",
            f"placement.engine_nodes {nodes} puts one engine on {nodes} machines, and engine "
            f"{engine.resolved.id} serves on one",
            "set placement.engine_nodes to 1, or choose an engine that can be on several",
        )
    transport = trainer.options.get("transport") if trainer and "loss" in config.needs else None
    if transport in ("shared_memory", "cuda_ipc"):
        yield Problem(
            "trainer.transport",
            f"trainer.transport {transport} stays on one machine, and placement.engine_nodes "
            f"{nodes} puts one engine on {nodes}",
            "set trainer.transport to nccl, or to disk where all machines share the run folder",
        )


def _engine_problems(found: Mapping[str, UsedComponent]) -> Iterator[Problem]:
    if "engine" in found:
        yield from _transport_problems(found["engine"], found["trainer"])
    teacher = found.get("teacher.engine")
    if teacher and not cast(EngineComponent, teacher.resolved.component).scores:
        yield Problem(
            "teacher.engine.use",
            f"engine {teacher.resolved.id} cannot say how likely given tokens are",
            "leave teacher.engine out to run the teacher in the trainer's backend",
        )


def _transport_problems(engine: UsedComponent, trainer: UsedComponent) -> Iterator[Problem]:
    receives = cast(EngineComponent, engine.resolved.component).transports
    sends = cast(TrainerComponent, trainer.resolved.component).transports
    if not set(receives) & set(sends):
        yield Problem(
            "engine.use",
            f"engine {engine.resolved.id} receives weights by {_listed(receives)}, trainer "
            f"{trainer.resolved.id} sends them by {_listed(sends)}: they share no way",
            "choose an engine and a trainer that share one",
        )


def _rank_problems(config: RunConfig, found: Mapping[str, UsedComponent]) -> Iterator[Problem]:
    ranks = config.placement.trainer_ranks
    for path in ("trainer", "value.trainer"):
        trainer = found.get(path)
        if ranks == 1 or trainer is None:
            continue
        if not cast(TrainerComponent, trainer.resolved.component).data_parallel:
            yield Problem(
                "placement.trainer_ranks",
                f"placement.trainer_ranks {ranks} shares every batch among {ranks} trainers, and "
                f"{path} {trainer.resolved.id} trains alone",
                "set placement.trainer_ranks to 1, or choose a data-parallel trainer",
            )


def _memory_problems(config: RunConfig, found: Mapping[str, UsedComponent]) -> Iterator[Problem]:
    if not config.placement.colocate or not {"engine", "trainer"} <= set(config.needs):
        return
    for path in ("engine", "trainer", "value.trainer", "teacher.engine"):
        if path not in found:
            continue
        part = cast(EngineComponent | TrainerComponent, found[path].resolved.component)
        if not part.offloads:
            yield Problem(
                "placement.colocate",
                "placement.colocate lets engines and trainers take turns with memory, and "
                f"{path} {found[path].resolved.id} cannot hand its memory over",
                "set placement.colocate=false, or choose one that can",
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "nothing"
