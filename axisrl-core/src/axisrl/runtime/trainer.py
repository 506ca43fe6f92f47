"""TrainerActor: pulls rows by handle, packs them, computes what the loss needs and nothing else,
and steps."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from axisrl.errors import ConfigError
from axisrl.protocols import HandleStore, Loss, Packer, TrainerBackend
from axisrl.runtime.actors import Actor, ActorBoot
from axisrl.runtime.batch import samples_of, with_weights
from axisrl.trace import Trace
from axisrl.types import (
    FloatArray,
    Handle,
    PackBudget,
    PackedBatch,
    Sample,
    StepStats,
    WeightUpdate,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainItem:
    """One rollout of a batch: where its trace is and what each of its trained tokens is worth."""

    trace: Handle
    trajectory: int
    advantage: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """An optimizer step as the driver sees it."""

    stats: StepStats
    rows: int
    batches: int


class TrainerActor(Actor):
    """One trainer rank."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        super().__init__(boot, store)
        config = boot.config
        self._loss: Loss = self.build("loss", config.loss, "loss")
        self._packer: Packer = self.build("packer", config.packer, "packer")
        self._backend: TrainerBackend = self.build("trainer", config.trainer, "trainer")
        self._budget = PackBudget(max_tokens=config.train.max_tokens_per_batch)
        self._window: list[list[Sample]] = []
        missing = self._loss.needs - self._backend.provides
        if missing:
            raise ConfigError(
                f"loss {config.loss.use} needs {', '.join(sorted(missing))}, which trainer "
                f"{config.trainer.use} does not provide",
                fix="choose another loss or trainer",
            )
        self.started()

    def start(self) -> None:
        """Load the model and make the optimizer."""
        self._backend.start(self.boot.model, self.boot.config.train.updates)

    async def load_window(self, batches: Sequence[Sequence[TrainItem]]) -> None:
        """Fetch the rows of a window's updates; later updates get the log-probabilities of before
        the first."""
        self._window = [await self._fetch(items) for items in batches]
        if "old_logprobs" in self._loss.needs:
            # The first update needs no pass: its ratio is 1 by definition, whatever the packing.
            self._window[1:] = await asyncio.to_thread(
                lambda: [self._with_old_logprobs(samples) for samples in self._window[1:]]
            )

    async def step(self, index: int) -> StepReport:
        """Take update ``index`` of the loaded window."""
        loss = self._loss
        samples = with_weights(self._window[index], loss.aggregation, loss.sequence_norm)
        packed = self._packer.pack(samples, self._budget)
        stats = await asyncio.to_thread(self._backend.step, packed, loss)
        return StepReport(stats=stats, rows=len(samples), batches=len(packed))

    async def weight_update(self, version: int) -> WeightUpdate:
        """Offer the current weights."""
        return await asyncio.to_thread(self._backend.weight_update, version)

    async def save(self, path: Path) -> None:
        """Write the trainer's whole state into ``path``."""
        await asyncio.to_thread(self._backend.save, path)

    async def load(self, path: Path) -> None:
        """Continue from a saved state."""
        await asyncio.to_thread(self._backend.load, path)

    async def stop(self) -> None:
        """Free the model."""
        await asyncio.to_thread(self._backend.stop)

    async def _fetch(self, items: Sequence[TrainItem]) -> list[Sample]:
        samples: list[Sample] = []
        for item in items:
            trace = Trace.from_bytes((await self.store.get(item.trace)).tobytes())
            samples += samples_of(trace, item.advantage, item.trajectory)
        return samples

    def _with_old_logprobs(self, samples: list[Sample]) -> list[Sample]:
        packed: Sequence[PackedBatch] = self._packer.pack(samples, self._budget)
        old = list(samples)
        for batch, logprobs in zip(packed, self._backend.logprobs(packed), strict=True):
            for row, values in zip(batch.rows, self._packer.unpack(batch, logprobs), strict=True):
                old[row] = dataclasses.replace(samples[row], old_logprobs=values)
        return old
