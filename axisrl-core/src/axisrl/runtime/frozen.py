"""Models that only say how likely the sampled tokens are: a reference, a teacher.

``FrozenActor`` runs one in a trainer backend; ``ServedTeacher`` asks a rollout engine that can
score. Both answer :meth:`score` with handles to log-probabilities at the sampling temperature.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import numpy as np

from axisrl.config.schema import needed
from axisrl.errors import ConfigError
from axisrl.protocols import EnginePart, HandleStore, ScoringEngine
from axisrl.runtime.actors import ActorBoot
from axisrl.runtime.backend import BackendActor
from axisrl.runtime.memory import offloading_engine
from axisrl.runtime.rows import RowsActor
from axisrl.runtime.trajectory import Trajectory
from axisrl.types import (
    FloatArray,
    Handle,
    RolloutGroup,
    Sample,
    WeightAck,
    WeightUpdate,
)


class FrozenActor(BackendActor):
    """``boot.model`` in the trainer's backend, without an optimizer."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        super().__init__(boot, store)
        use = needed(boot.config.trainer, "trainer")
        self.backend = self.build("trainer", use, "trainer")
        self.started()

    def start(self) -> None:
        """Load the model."""
        self.backend.start(self.boot.model, None)

    async def score(self, groups: Sequence[RolloutGroup]) -> dict[str, Handle]:
        """Log-probabilities of every rollout's trained tokens."""
        trajectories = await self.trajectories(groups)
        samples = [sample for _, one in trajectories for sample in one.samples]
        rows = iter(await asyncio.to_thread(self.per_token, samples, self.backend.logprobs))
        return {
            rollout: await self.put(one.gather([next(rows) for _ in one.samples]))
            for rollout, one in trajectories
        }

    async def update_weights(self, update: WeightUpdate) -> WeightAck:
        """Become another model's copy."""
        return await asyncio.to_thread(self.backend.update_weights, update)


class ServedTeacher(RowsActor):
    """A teacher behind a rollout engine."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        super().__init__(boot, store)
        teacher = boot.config.teacher
        if teacher is None or teacher.engine is None:
            raise ValueError("a served teacher needs teacher.engine in the configuration")
        engine = self.build("engine", teacher.engine, "teacher.engine")
        if not isinstance(engine, ScoringEngine):
            raise ConfigError(
                f"teacher.engine: {teacher.engine.use} cannot score given tokens",
                fix="leave teacher.engine out to run the teacher in the trainer's backend",
            )
        self._engine: ScoringEngine = engine
        self.started()

    async def start(self) -> None:
        """Load the model."""
        await self._engine.start(self.boot.model)

    async def score(self, groups: Sequence[RolloutGroup]) -> dict[str, Handle]:
        """Log-probabilities of every rollout's trained tokens."""
        trajectories = await self.trajectories(groups)
        return dict(await asyncio.gather(*(self._score_one(*each) for each in trajectories)))

    async def offload(self, parts: Collection[EnginePart]) -> None:
        """Free the GPU memory of these parts."""
        await offloading_engine(self._engine, "teacher.engine").offload(parts)

    async def reload(self, parts: Collection[EnginePart]) -> None:
        """Bring them back."""
        await offloading_engine(self._engine, "teacher.engine").reload(parts)

    async def stop(self) -> None:
        """Free the model."""
        await self._engine.stop()

    async def _score_one(self, rollout: str, one: Trajectory) -> tuple[str, Handle]:
        rows = [await self._row(sample) for sample in one.samples]
        return rollout, await self.put(one.gather(rows))

    async def _row(self, sample: Sample) -> FloatArray:
        ids = np.append(sample.ids, sample.labels[-1])
        temperature = float(sample.temperature[sample.loss_mask][0])
        return await self._engine.score(ids, temperature)
