"""BackendActor: what every actor with a trainer backend does alike, whatever its model is for."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

from axisrl.protocols import HandleStore, TrainerBackend, TrainerPart
from axisrl.runtime.actors import ActorBoot
from axisrl.runtime.memory import offloading_trainer
from axisrl.runtime.routing import ExpertsReader, replaying_trainer
from axisrl.runtime.rows import RowsActor


class BackendActor(RowsActor):
    """Base; a subclass makes the backend and starts it."""

    backend: TrainerBackend

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        super().__init__(boot, store)
        self._experts = ExpertsReader(self.store)

    def replay_routing(self) -> None:
        """Let the backend choose the experts that the engine chose, where the run keeps them.
        Raises ``ConfigError`` when it cannot."""
        if self.boot.config.rollout.routing:
            replaying_trainer(self.backend).replay_routing(self._experts)

    async def save(self, path: Path) -> None:
        """Write the model's whole state into ``path``."""
        await asyncio.to_thread(self.backend.save, path)

    async def load(self, path: Path) -> None:
        """Continue from a saved state."""
        await asyncio.to_thread(self.backend.load, path)

    async def offload(self, parts: Collection[TrainerPart]) -> None:
        """Free the GPU memory of these parts."""
        backend = offloading_trainer(self.backend, self.boot.role)
        await asyncio.to_thread(backend.offload, parts)

    async def reload(self, parts: Collection[TrainerPart]) -> None:
        """Bring them back."""
        backend = offloading_trainer(self.backend, self.boot.role)
        await asyncio.to_thread(backend.reload, parts)

    async def stop(self) -> None:
        """Free the model."""
        await asyncio.to_thread(self.backend.stop)
