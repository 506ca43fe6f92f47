"""BackendActor: what every actor with a trainer backend does alike, whatever its model is for."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

from axisrl.protocols import TrainerBackend, TrainerPart
from axisrl.runtime.memory import offloading_trainer
from axisrl.runtime.rows import RowsActor


class BackendActor(RowsActor):
    """Base; a subclass makes the backend and starts it."""

    backend: TrainerBackend

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
