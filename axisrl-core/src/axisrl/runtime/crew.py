"""Crew: every actor of a run, started in the order they need each other.

Models are loaded before a worker can ask for a token. A run has the models its configuration and
its loss ask for, and no other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from axisrl.config.schema import RunConfig
from axisrl.runtime.actors import ActorBoot, ActorHandle
from axisrl.runtime.conversations import ConversationActor
from axisrl.runtime.engine import EngineActor
from axisrl.runtime.frozen import FrozenActor, ServedTeacher
from axisrl.runtime.learners import Learners
from axisrl.runtime.placement import Placement
from axisrl.runtime.recorder import RecorderActor
from axisrl.runtime.replay import ReplayActor
from axisrl.runtime.rollout import RolloutActor
from axisrl.runtime.trainer import TrainerActor, ValueActor


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Handles of a run's actors."""

    learners: Learners
    engines: Mapping[str, ActorHandle]
    recorder: ActorHandle
    workers: Sequence[ActorHandle]
    """Play rollouts; none where neither training nor evaluation plays any."""
    players: Sequence[ActorHandle]
    """Answer the training tasks: the workers, or what holds conversations."""
    replayer: ActorHandle | None = None


async def hire(boot: ActorBoot, placement: Placement) -> Crew:
    """Start every actor that the configuration asks for."""
    config, gpus = boot.config, boot.config.placement
    plays = config.mode == "train" or config.eval is not None
    workers_wanted = config.rollout.workers if plays else 0
    models = [gpus.gpus_trainer] * _models(config)
    engines = [gpus.gpus_engine] if plays else []
    others = workers_wanted + 1 + (config.mode == "train_offline")  # the recorder, what replays
    placement.require([*models, *engines, *([0.0] * others)])
    learners = await _learners(boot, placement)
    served: dict[str, ActorHandle] = {}
    if plays:
        engine = _role(boot, "engine")
        served["engine rank 0"] = await placement.spawn(EngineActor, engine, gpus=gpus.gpus_engine)
    recorder = await placement.spawn(RecorderActor, _role(boot, "recorder"))
    await learners.start()
    for handle in served.values():
        await handle.call("start")
    workers = [
        await placement.spawn(RolloutActor, _role(boot, "rollout", rank), *served.values())
        for rank in range(workers_wanted)
    ]
    players, replayer = workers, None
    if config.mode == "train_offline" and config.offline.rollouts:
        replayer = await placement.spawn(ReplayActor, _role(boot, "replay"))
    elif config.mode == "train_offline":
        players = [await placement.spawn(ConversationActor, _role(boot, "conversations"))]
    return Crew(
        learners=learners,
        engines=served,
        recorder=recorder,
        workers=workers,
        players=players,
        replayer=replayer,
    )


async def _learners(boot: ActorBoot, placement: Placement) -> Learners:
    config, gpus = boot.config, boot.config.placement.gpus_trainer
    policy = await placement.spawn(TrainerActor, _role(boot, "trainer"), gpus=gpus)
    value = reference = teacher = None
    if config.value:
        value = await placement.spawn(ValueActor, _role(boot, "value"), gpus=gpus)
    if "reference_logprobs" in await policy.call("needs"):
        reference = await placement.spawn(FrozenActor, _role(boot, "reference"), gpus=gpus)
    if config.teacher:
        kind = ServedTeacher if config.teacher.engine else FrozenActor
        teacher = await placement.spawn(kind, _role(boot, "teacher"), gpus=gpus)
    return Learners(config=config, policy=policy, value=value, reference=reference, teacher=teacher)


def _models(config: RunConfig) -> int:
    asked = (config.value, config.teacher, config.kl.coef and config.kl.base == "reference")
    return 1 + sum(map(bool, asked))


def _role(boot: ActorBoot, role: str, rank: int = 0) -> ActorBoot:
    """The boot of one actor; value model and teacher have models of their own."""
    return dataclasses.replace(boot, role=role, rank=rank, model=boot.models.get(role, boot.model))
