"""Crew: every actor of a run, started in the order they need each other.

1. Models are loaded before a worker can ask for a token. A run has the models its configuration and
   its loss ask for, and no other.
2. Engines, judges, services and rollout workers keep their places: one that is gone is replaced,
   and whoever calls others is connected with those that are there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from axisrl.config.schema import RunConfig
from axisrl.protocols import HandleStore
from axisrl.runtime.actors import Actor, ActorBoot, ActorHandle
from axisrl.runtime.comparer import ComparerActor
from axisrl.runtime.conversations import ConversationActor
from axisrl.runtime.engine import EngineActor
from axisrl.runtime.frozen import FrozenActor, ServedTeacher
from axisrl.runtime.judges import RewardActor, VerifierActor
from axisrl.runtime.learners import Learners
from axisrl.runtime.memory import MemoryTurns
from axisrl.runtime.placement import Placement
from axisrl.runtime.places import ResourceGroup
from axisrl.runtime.ranks import spawn_ranks
from axisrl.runtime.recorder import RecorderActor
from axisrl.runtime.replay import ReplayActor
from axisrl.runtime.rollout import RolloutActor
from axisrl.runtime.services import ServiceActor, group_of
from axisrl.runtime.span import group_of_span, spawn_span
from axisrl.runtime.staff import Kind, Peers, Staff, Start
from axisrl.runtime.supervisor import Post, Supervisor
from axisrl.runtime.trainer import TrainerActor, ValueActor
from axisrl.runtime.weights import Engines
from axisrl.runtime.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Handles of a run's actors."""

    learners: Learners | None
    engines: Engines
    recorder: ActorHandle
    workers: Workers
    """Play rollouts; none where neither training nor evaluation plays any."""
    players: Workers
    """Answer the training tasks: the workers, or what holds conversations."""
    replayer: ActorHandle | None = None
    comparer: ActorHandle | None = None
    """The trainer's model, frozen, beside the engine."""
    services: Sequence[ActorHandle] = ()
    """Replicas of all named services."""


async def hire(
    boot: ActorBoot,
    placement: Placement,
    store: HandleStore,
    supervisor: Supervisor,
    memory: MemoryTurns,
) -> Crew:
    """Start every actor that the configuration asks for, and have it watched; ``memory`` gets to
    know those with a model."""
    config, plays = boot.config, "engine" in boot.config.needs
    await placement.reserve(_groups(config))
    learners = await _learners(boot, placement, memory) if "loss" in config.needs else None
    comparer = None
    if config.mode == "mismatch":
        comparer = await placement.spawn(ComparerActor, _role(boot, "trainer"), group="trainer")
    staff = Staff(placement)
    engines = await _engines(boot, placement, staff, memory)
    recorder = await placement.spawn(RecorderActor, _role(boot, "recorder"), group="workers")
    if learners:
        await learners.start()
    if comparer:
        await comparer.call("start")
        await memory.add_model("comparer", comparer)
    await staff.start("engine")
    await memory.add_engines(engines.posts)
    services = await _judges_and_services(boot, placement, staff) if plays else []
    await staff.employ(
        config.rollout.workers if plays else 0,
        lambda rank, peers: placement.spawn(
            RolloutActor, _role(boot, "rollout", rank), peers, group="workers"
        ),
    )
    workers = Workers(staff.workers, store)
    players, replayer = workers, None
    if config.offline.rollouts:
        replayer = await placement.spawn(ReplayActor, _role(boot, "replay"), group="workers")
    elif config.mode == "train_offline":
        role = _role(boot, "conversations")
        holder = await placement.spawn(ConversationActor, role, group="workers")
        players = Workers([Post("conversations 0", holder)])
    if config.placement.kind == "ray":
        staff.watched_by(supervisor)
    return Crew(
        learners=learners,
        engines=engines,
        recorder=recorder,
        workers=workers,
        players=players,
        replayer=replayer,
        comparer=comparer,
        services=services,
    )


async def _judges_and_services(
    boot: ActorBoot, placement: Placement, staff: Staff
) -> Sequence[ActorHandle]:
    """Places what is called by its name in the configuration; returns the services."""

    def kind(actor: type[Actor], name: str, start: Start, calls: tuple[str, ...] | None) -> Kind:
        async def spawn(rank: int, peers: Peers) -> ActorHandle:
            args = () if calls is None else (peers,)
            return await placement.spawn(actor, _role(boot, name, rank), *args, group=name)

        return Kind(spawn=spawn, start=start, calls=calls or (), pooled=True)

    posts: list[Post] = []
    for name, use in boot.config.services.items():
        group = group_of(name)
        posts += await staff.place(group, use.replicas, kind(ServiceActor, group, _start, None))
        await staff.start(group)
    called = tuple(map(group_of, boot.config.services))
    where = boot.config.placement
    if where.verifiers:
        judge = kind(VerifierActor, "verifier", _ready, called)
        await staff.place("verifier", where.verifiers, judge)
    if where.rewards:
        await staff.place("reward", where.rewards, kind(RewardActor, "reward", _ready, called))
    return posts


async def _start(rank: int, actor: ActorHandle) -> None:
    await actor.call("start")


async def _ready(rank: int, actor: ActorHandle) -> None:
    """Its constructor did everything."""


async def _engines(
    boot: ActorBoot, placement: Placement, staff: Staff, memory: MemoryTurns
) -> Engines:
    """The engines' processes; their models are loaded when the staff starts them."""
    config, posts = boot.config, dict[str, Post]()
    engines = Engines(posts, config.placement.sync_timeout_s)
    count = config.placement.engines if "engine" in config.needs else 0

    async def spawn(rank: int, _: Peers) -> ActorHandle:
        return await spawn_span(placement, EngineActor, _role(boot, "engine", rank), "rollout")

    async def start(rank: int, engine: ActorHandle) -> None:
        memory.check_room(f"engine rank {rank}")
        await engine.call("start")
        await engines.catch_up(f"engine rank {rank}", engine)

    for rank, post in enumerate(await staff.place("engine", count, Kind(spawn=spawn, start=start))):
        posts[f"engine rank {rank}"] = post
    return engines


async def _learners(boot: ActorBoot, placement: Placement, memory: MemoryTurns) -> Learners:
    config = boot.config
    policy = await spawn_ranks(placement, TrainerActor, _role(boot, "trainer"), "trainer")
    value = reference = teacher = None
    if config.value:
        value = await spawn_ranks(placement, ValueActor, _role(boot, "value"), "trainer")
    if "reference_logprobs" in await policy.call("needs"):
        group = "trainer" if "reference" in config.models else "reference"
        if group == "reference":  # only the loss itself knew
            gpus = config.placement.gpus_trainer
            bundles = config.placement.shared_gpus
            late = ResourceGroup(count=1, gpus=gpus, bundles=bundles)
            await placement.reserve({group: late})
        reference = await placement.spawn(FrozenActor, _role(boot, "reference"), group=group)
    if config.teacher:
        kind = ServedTeacher if config.teacher.engine else FrozenActor
        teacher = await placement.spawn(kind, _role(boot, "teacher"), group="trainer")
    return Learners(
        config=config,
        memory=memory,
        policy=policy,
        value=value,
        reference=reference,
        teacher=teacher,
    )


def _groups(config: RunConfig) -> dict[str, ResourceGroup]:
    """Resource group -> the actors that the configuration asks for."""
    where, plays = config.placement, "engine" in config.needs
    workers = config.rollout.workers if plays else 0
    models, bundles = sum(config.models.values()), where.shared_gpus
    return {
        "trainer": ResourceGroup(count=models, gpus=where.gpus_trainer, bundles=bundles),
        **(_engine_groups(config) if plays else {}),
        "verifier": ResourceGroup(count=where.verifiers if plays else 0),
        "reward": ResourceGroup(count=where.rewards if plays else 0),
        **{
            group_of(name): ResourceGroup(count=use.replicas if plays else 0, gpus=use.gpus)
            for name, use in config.services.items()
        },
        # With them the recorder, and what replays or holds conversations.
        "workers": ResourceGroup(count=workers + 1 + config.replays),
    }


def _engine_groups(config: RunConfig) -> dict[str, ResourceGroup]:
    """One for all engines, or one for each where each is on several machines."""
    where, gpus = config.placement, config.placement.gpus_engine
    if where.engine_nodes == 1:
        engines = ResourceGroup(count=where.engines, gpus=gpus, bundles=where.shared_gpus)
        return {"rollout": engines}
    parts = ResourceGroup(count=where.engine_nodes, gpus=gpus, apart=True)
    return {group_of_span("rollout", rank): parts for rank in range(where.engines)}


def _role(boot: ActorBoot, role: str, rank: int = 0) -> ActorBoot:
    """The boot of one actor; value model and teacher have models of their own."""
    return dataclasses.replace(boot, role=role, rank=rank, model=boot.models.get(role, boot.model))
