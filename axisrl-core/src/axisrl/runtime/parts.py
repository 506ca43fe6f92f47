"""RunParts: everything a controller works with, assembled from a config and taken apart again.

Order matters: the store and the placement first, then the trainer and the engines (which load
models), then the workers that need an engine. :meth:`RunParts.close` undoes it in reverse, whatever
failed in between.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from axisrl.config.schema import RunConfig, Use, needed
from axisrl.errors import ActorGone, ConfigError
from axisrl.plugins import Kind
from axisrl.plugins.events import CheckpointSaved, RolloutFinished
from axisrl.plugins.manager import PluginManager
from axisrl.protocols import HandleStore, TaskDataset
from axisrl.runtime.actors import ActorBoot, ActorHandle, build_component
from axisrl.runtime.checkpoint import RunState, save_checkpoint
from axisrl.runtime.collect import (
    Collector,
    NoWindows,
    Window,
    WindowSource,
    check_failures,
    window_metrics,
)
from axisrl.runtime.crew import Crew, hire
from axisrl.runtime.evaluate import Evaluator
from axisrl.runtime.faults import Injector
from axisrl.runtime.flow import RolloutFlow
from axisrl.runtime.learners import Learners
from axisrl.runtime.loggers import LoggerGroup
from axisrl.runtime.memory import MemoryTurns
from axisrl.runtime.metrics import MetricWindow
from axisrl.runtime.placement import Placement, make_placement
from axisrl.runtime.pool import RolloutPool
from axisrl.runtime.replay import ReplaySource, check_folder
from axisrl.runtime.sampler import TaskSampler
from axisrl.runtime.spans import SpanLog
from axisrl.runtime.supervisor import RestartBudget, Supervisor
from axisrl.runtime.timeline import Timeline
from axisrl.runtime.weights import Engines
from axisrl.runtime.workers import Workers
from axisrl.types import Metric, RolloutGroup, RolloutSummary

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
    learners: Learners | None
    """None where nothing is learnt."""
    comparer: ActorHandle | None
    """Scores rollouts with the trainer's model, in ``mode: mismatch``."""
    engines: Engines
    workers: Workers
    supervisor: Supervisor
    memory: MemoryTurns
    recorder: ActorHandle
    services: Sequence[ActorHandle]
    source: WindowSource
    evaluator: Evaluator | None
    loggers: LoggerGroup
    spans: SpanLog
    timeline: Timeline
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
        self.state = dataclasses.replace(
            self.state,
            quarantined=self.workers.quarantined,
            loggers=dict(self.loggers.state_dict()),
        )
        if self.state == self.saved:
            return
        step = self.state.step
        with self.spans.span("checkpoint", step=step):
            keep = self.config.checkpoint.keep
            models = self.learners.saved(self.state) if self.learners else {}
            phase = partial(self.spans.span, step=step)
            path = await save_checkpoint(self.run_dir, self.state, models, keep=keep, phase=phase)
        if self.saved is None or self.saved.step < self.state.step:
            self.supervisor.budget.refill()
        self.saved = self.state
        self.plugins.checkpoint_saved(CheckpointSaved(step=self.state.step, path=path))

    async def resume(self, checkpoint: Path, state: RunState) -> None:
        """Bring the models, the engines and the run folder to a saved state."""
        self.state = self.saved = state
        self.source.load_state_dict(state.source)
        self.source.version = state.version
        self.workers.quarantine(state.quarantined)
        if self.learners:
            await self.learners.load(checkpoint, state)
            await self.memory.sync()
            await self.engines.sync(self.learners.policy, (0, state.version))
        await self.recorder.call("forget_after", state.step)

    async def start_over(self) -> None:
        """Bring the run folder back to the beginning of the run."""
        await self.recorder.call("forget_after", 0)

    async def evaluate(self) -> dict[str, float]:
        """Measure the weights that the engines serve; ``eval/*`` and its time, nothing without
        ``eval``."""
        step = self.state.step
        if self.evaluator is None:
            return {}
        await self.memory.play()
        with self.spans.span("evaluate", step=step):
            result = await self.evaluator.run()
        if self.config.eval and self.config.eval.save_rollouts:
            await self.recorder.call("write", "eval", step, result.rollouts, {})
        await self.release(result.rollouts)
        check_failures(result.rollouts, self.config.rollout.max_failed_fraction)
        return {**result.metrics, "time/eval_s": self.spans.last["evaluate"]}

    def recoveries(self) -> dict[str, float]:
        """``recovery/*``: how losses were made good since this process began; nothing when there
        was none."""
        done = self.supervisor.budget.recoveries
        found = {f"recovery/{what}": float(count) for what, count in sorted(done.items())}
        if self.workers.reissued:
            found["recovery/reissued_rollouts"] = float(self.workers.reissued)
        if quarantined := self.workers.quarantined:
            found["recovery/quarantined_tasks"] = float(len(quarantined))
        return found

    def measure(self, window: Window) -> MetricWindow:
        """``reward/*`` and ``rollout/*`` of the window that was collected last, and how long that
        took."""
        metrics = window_metrics(window, judged=bool(self.config.verifiers))
        seconds, sampled = self.spans.last["rollout"], sum(o.sampled_tokens for o in window.played)
        metrics.add("time/rollout_s", Metric(value=seconds, reduce="sum"))
        metrics.add("rollout/tokens_per_s", Metric(value=sampled / max(seconds, 1e-9)))
        return metrics

    async def record(
        self,
        step: int,
        window: Window,
        groups: Sequence[RolloutGroup],
        advantages: Mapping[str, float],
    ) -> None:
        """Write the step's rollouts and let them go; what no update used goes with the window's
        first."""
        used = [member for group in groups for member in group.members]
        trained = {m.id for group in window.groups for m in group.members}
        first = groups[0] is window.groups[0]
        unused = [one for one in window.played if one.id not in trained] if first else []
        rows = await self.recorder.call("write", "step", step, used + unused, advantages)
        self.loggers.rollouts(step, rows)
        await self.release(used + unused)

    async def release(self, rollouts: Sequence[RolloutSummary]) -> None:
        """Free what the store holds of rollouts nobody needs any more."""
        kept = ((one.trace, one.record, one.turn_rewards, one.routing) for one in rollouts)
        handles = [handle for each in kept for handle in each if handle is not None]
        await self.store.release(handles)

    async def close(self) -> None:
        """End the actors, then the placement, then the store; one failure does not keep the
        others."""
        await _quietly("the supervisor", self.supervisor.close())
        await _quietly("the rollouts", self.source.close())
        for engine in self.engines.posts.values():
            await _quietly("an engine", engine.call("stop"))
        for service in self.services:
            await _quietly("a service", service.call("stop"))
        if self.learners:
            await _quietly("the learners", self.learners.stop())
        if self.comparer:
            await _quietly("the comparer", self.comparer.call("stop"))
        await _quietly("the placement", self.placement.close())
        await _quietly("the store", self.store.close())
        self.spans.close()


async def assemble(driver: DriverSide) -> RunParts:
    """Start every actor of a run. On an error whatever already runs is ended before it is
    raised."""
    boot = driver.boot
    store: HandleStore = driver.build("store", boot.config.store, "store")
    placement: Placement | None = None
    where = boot.config.placement
    supervisor = Supervisor(driver.budget, where.lease_s, where.restart_timeout_s)
    border = driver.faults.border if driver.faults else None
    spans = SpanLog(boot.run_dir / "events.jsonl", border)
    memory = MemoryTurns(boot.config.placement.colocate, spans)
    try:
        placement = make_placement(boot.config.placement, store)
        crew = await hire(boot, placement, store, supervisor, memory)
        if driver.faults:
            here = not boot.config.placement.address
            driver.faults.aim(placement.actors, store, here=here)
        timeline = Timeline(spans, crew.engines.posts)
        driver.timeline = timeline
        return RunParts(
            config=boot.config,
            run_dir=boot.run_dir,
            plugins=driver.plugins,
            store=store,
            placement=placement,
            learners=crew.learners,
            comparer=crew.comparer,
            engines=crew.engines,
            workers=crew.workers,
            supervisor=supervisor,
            memory=memory,
            recorder=crew.recorder,
            services=crew.services,
            source=driver.source(crew, store),
            evaluator=driver.evaluator(crew),
            loggers=driver.loggers,
            spans=spans,
            timeline=timeline,
        )
    except BaseException:
        await supervisor.close()
        if placement is not None:
            await _quietly("the placement", placement.close())
        await _quietly("the store", store.close())
        spans.close()
        raise


class DriverSide:
    """The components that live in the driver: datasets and evaluation; and its ears.

    Making one reads the data and writes nothing: what is missing is found before a run begins.
    """

    def __init__(
        self,
        boot: ActorBoot,
        plugins: PluginManager,
        loggers: LoggerGroup,
        faults: Injector | None = None,
    ) -> None:
        self.boot = boot
        self.plugins = plugins
        self.loggers = loggers
        self.faults = faults
        self.timeline: Timeline | None = None
        """Draws rollouts once the run is assembled."""
        config, plan = boot.config, boot.config.eval
        self.budget = RestartBudget(config.placement.restarts)
        check_folder(config, boot.run_dir)
        tasks = config.dataset if "dataset" in config.needs else None
        self._tasks = self._dataset(tasks, "dataset") if tasks else None
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

    def source(self, crew: Crew, store: HandleStore) -> WindowSource:
        """What fills training windows."""
        config = self.boot.config
        if "dataset" not in config.needs and not crew.replayer:
            return NoWindows()
        if crew.replayer:
            return ReplaySource(config, crew.replayer)
        pool = RolloutPool(crew.players, self.rollout_finished)
        tasks = needed(self._tasks, "dataset")
        sampler = TaskSampler(tasks, config.seed, config.sampler)
        if config.schedule.kind == "async":
            return RolloutFlow(config, pool, sampler, store)
        return Collector(config, pool, sampler)

    def evaluator(self, crew: Crew) -> Evaluator | None:
        """What measures held-out tasks, when the config asks for it."""
        config = self.boot.config
        if config.eval is None or self._held_out is None:
            return None
        sampling, judged = config.rollout.sampling, bool(config.verifiers)
        pool = RolloutPool(crew.workers, self.rollout_finished)
        return Evaluator(config.eval, self._held_out, pool, sampling, judged=judged)

    def rollout_finished(self, summary: RolloutSummary, done: int, total: int) -> None:
        """Tell the plugins and the progress display that one came home."""
        self.plugins.rollout_finished(RolloutFinished(summary=summary))
        if self.timeline:
            self.timeline.rollout(summary)
        phase = "evaluate" if summary.id.startswith("eval") else "rollout"
        if phase == "evaluate" or self.boot.config.schedule.kind == "sync":
            # Beside the learning rollouts come home in every phase, and are none themselves.
            self.loggers.progress(phase, done, total)


def _crosses(every: int, step: int, config: RunConfig) -> bool:
    """Whether a multiple of ``every`` lies in the window of updates that ended at ``step``."""
    before = step - config.train.updates_per_sync
    return every > 0 and step // every > before // every


async def _quietly(what: str, work: Awaitable[Any]) -> None:
    try:
        async with asyncio.timeout(_CLOSE_S):
            await work
    except ActorGone:
        pass  # it closed before it was asked to; whoever lost it has said so
    except TimeoutError:
        _LOGGER.warning("%s did not close within %g s", what, _CLOSE_S)
    except Exception as error:  # noqa: BLE001 - the first error is the one that counts
        _LOGGER.warning("%s did not close: %s", what, error)
