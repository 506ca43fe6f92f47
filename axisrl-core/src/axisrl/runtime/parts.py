"""RunParts: everything a controller works with, assembled from a config and taken apart again.

Order matters: the store and the placement first, then the trainer and the engines (which load
models), then the workers that need an engine. :meth:`RunParts.close` undoes it in reverse, whatever
failed in between.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from axisrl.config.schema import RunConfig, Use
from axisrl.errors import ConfigError
from axisrl.plugins import Kind
from axisrl.plugins.events import CheckpointSaved, RolloutFinished
from axisrl.plugins.manager import PluginManager
from axisrl.protocols import Advantage, HandleStore, TaskDataset
from axisrl.runtime.actors import ActorBoot, ActorHandle, build_component
from axisrl.runtime.checkpoint import RunState, save_checkpoint
from axisrl.runtime.collect import Collector
from axisrl.runtime.engine import EngineActor
from axisrl.runtime.evaluate import Evaluator
from axisrl.runtime.loggers import LoggerGroup
from axisrl.runtime.placement import Placement, make_placement
from axisrl.runtime.pool import RolloutPool
from axisrl.runtime.recorder import RecorderActor
from axisrl.runtime.rollout import RolloutActor
from axisrl.runtime.sampler import TaskSampler
from axisrl.runtime.spans import SpanLog
from axisrl.runtime.trainer import TrainerActor
from axisrl.runtime.weights import sync_weights
from axisrl.types import RolloutSummary

_LOGGER = logging.getLogger("axisrl.run")
_CLOSE_S = 30.0
"""A part that hangs (it may be why the run failed) must not keep the run from ending."""


@dataclass(slots=True, kw_only=True)
class RunParts:
    """A run, assembled."""

    config: RunConfig
    run_dir: Path
    plugins: PluginManager
    store: HandleStore
    placement: Placement
    trainer: ActorHandle
    engines: Sequence[ActorHandle]
    recorder: ActorHandle
    collector: Collector
    evaluator: Evaluator | None
    loggers: LoggerGroup
    spans: SpanLog
    state: RunState = field(default_factory=RunState)
    saved: RunState | None = None
    """What the newest checkpoint holds."""

    @property
    def evaluation_due(self) -> bool:
        """Before the first update, every N, and after the last."""
        plan, step = self.config.eval, self.state.step
        if plan is None:
            return False
        if step == 0:
            return plan.at_start
        return step == self.config.train.updates or _crosses(plan.every, step, self.config)

    @property
    def checkpoint_due(self) -> bool:
        """Every N; the end of a run saves anyway."""
        return _crosses(self.config.checkpoint.every, self.state.step, self.config)

    async def save(self) -> None:
        """Write a checkpoint of the present state, unless the newest one holds it already."""
        self.state = dataclasses.replace(self.state, loggers=dict(self.loggers.state_dict()))
        if self.state == self.saved:
            return
        with self.spans.span("checkpoint", step=self.state.step):
            keep = self.config.checkpoint.keep
            path = await save_checkpoint(self.run_dir, self.state, self.trainer, keep=keep)
        self.saved = self.state
        self.plugins.checkpoint_saved(CheckpointSaved(step=self.state.step, path=path))

    async def resume(self, checkpoint: Path, state: RunState) -> None:
        """Bring the trainer, the engines and the run folder to a saved state."""
        self.state = self.saved = state
        await self.trainer.call("load", checkpoint / "trainer")
        timeout = self.config.placement.sync_timeout_s
        await sync_weights(self.trainer, self.engines, (0, state.version), timeout)
        await self.recorder.call("forget_after", state.step)

    async def release(self, rollouts: Sequence[RolloutSummary]) -> None:
        """Free what the store holds of rollouts nobody needs any more."""
        handles = [h for one in rollouts for h in (one.trace, one.record) if h is not None]
        await self.store.release(handles)

    async def close(self) -> None:
        """End the actors, then the placement, then the store; one failure does not keep the
        others."""
        for actor in (*self.engines, self.trainer):
            await _quietly("an actor", actor.call("stop"))
        await _quietly("the placement", self.placement.close())
        await _quietly("the store", self.store.close())
        self.spans.close()


async def assemble(driver: DriverSide) -> RunParts:
    """Start every actor of a run. On an error whatever already runs is ended before it is
    raised."""
    boot = driver.boot
    store: HandleStore = driver.build("store", boot.config.store, "store")
    placement: Placement | None = None
    try:
        placement = make_placement(boot.config.placement, store)
        crew = await _crew(boot, placement)
        pool = RolloutPool(crew.workers, driver.rollout_finished)
        return RunParts(
            config=boot.config,
            run_dir=boot.run_dir,
            plugins=driver.plugins,
            store=store,
            placement=placement,
            trainer=crew.trainer,
            engines=crew.engines,
            recorder=crew.recorder,
            collector=driver.collector(pool),
            evaluator=driver.evaluator(pool),
            loggers=driver.loggers,
            spans=SpanLog(boot.run_dir / "events.jsonl"),
        )
    except BaseException:
        if placement is not None:
            await _quietly("the placement", placement.close())
        await _quietly("the store", store.close())
        raise


class _Crew(NamedTuple):
    trainer: ActorHandle
    engines: list[ActorHandle]
    recorder: ActorHandle
    workers: list[ActorHandle]


async def _crew(boot: ActorBoot, placement: Placement) -> _Crew:
    """Every actor, started; the models are loaded before a worker can ask for a token."""

    def role(name: str, rank: int = 0) -> ActorBoot:
        return dataclasses.replace(boot, role=name, rank=rank)

    gpus, workers_wanted = boot.config.placement, boot.config.rollout.workers
    placement.require([gpus.gpus_trainer, gpus.gpus_engine, 0.0, *([0.0] * workers_wanted)])
    trainer = await placement.spawn(TrainerActor, role("trainer"), gpus=gpus.gpus_trainer)
    engine = await placement.spawn(EngineActor, role("engine"), gpus=gpus.gpus_engine)
    recorder = await placement.spawn(RecorderActor, role("recorder"))
    await trainer.call("start")
    await engine.call("start")
    workers = [
        await placement.spawn(RolloutActor, role("rollout", rank), engine)
        for rank in range(workers_wanted)
    ]
    return _Crew(trainer, [engine], recorder, workers)


class DriverSide:
    """The components that live in the driver: dataset, advantage, evaluation; and its ears.

    Making one reads the data and writes nothing: what is missing is found before a run begins.
    """

    def __init__(self, boot: ActorBoot, plugins: PluginManager, loggers: LoggerGroup) -> None:
        self.boot = boot
        self.plugins = plugins
        self.loggers = loggers
        config, plan = boot.config, boot.config.eval
        self._tasks = self._dataset(config.dataset, "dataset")
        self._advantage: Advantage = self.build("advantage", config.advantage, "advantage")
        self._held_out = self._dataset(plan.dataset, "eval.dataset") if plan else None

    def build(self, kind: Kind, use: Use, path: str) -> Any:
        """A component from its place in the config."""
        services = {"model": self.boot.model}
        return build_component(self.plugins, self.boot, services, (kind, use, path))

    def _dataset(self, use: Use, path: str) -> TaskDataset:
        dataset: TaskDataset = self.build("dataset", use, path)
        if not len(dataset):
            raise ConfigError(
                f"{path}: {use.use} holds no task", fix=f"change the options of {path}"
            )
        return dataset

    def collector(self, pool: RolloutPool) -> Collector:
        """What fills training windows."""
        config = self.boot.config
        return Collector(config, pool, TaskSampler(self._tasks, config.seed), self._advantage)

    def evaluator(self, pool: RolloutPool) -> Evaluator | None:
        """What measures held-out tasks, when the config asks for it."""
        config = self.boot.config
        if config.eval is None or self._held_out is None:
            return None
        sampling, judged = config.rollout.sampling, bool(config.verifiers)
        return Evaluator(config.eval, self._held_out, pool, sampling, judged=judged)

    def rollout_finished(self, summary: RolloutSummary, done: int, total: int) -> None:
        """Tell the plugins and the progress display that one came home."""
        self.plugins.rollout_finished(RolloutFinished(summary=summary))
        phase = "evaluate" if summary.id.startswith("eval") else "rollout"
        self.loggers.progress(phase, done, total)


def _crosses(every: int, step: int, config: RunConfig) -> bool:
    """Whether a multiple of ``every`` lies in the window of updates that ended at ``step``."""
    before = step - config.train.updates_per_sync
    return every > 0 and step // every > before // every


async def _quietly(what: str, work: Awaitable[Any]) -> None:
    try:
        async with asyncio.timeout(_CLOSE_S):
            await work
    except TimeoutError:
        _LOGGER.warning("%s did not close within %g s", what, _CLOSE_S)
    except Exception as error:  # noqa: BLE001 - the first error is the one that counts
        _LOGGER.warning("%s did not close: %s", what, error)
