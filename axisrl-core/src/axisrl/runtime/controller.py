"""Controller: the algorithm, and nothing but. Collect a window, update, sync, evaluate, save.

State changes hands only at the border between two windows: what :class:`RunState` says is what a
checkpoint holds, so a run killed anywhere goes on from a border and repeats the rest bit for bit.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping

from axisrl.config.use import needed
from axisrl.plugins.events import BatchPacked, StepFinished, WeightsUpdated
from axisrl.runtime.collect import Window
from axisrl.runtime.interrupt import Interrupted, unless_interrupted
from axisrl.runtime.metrics import MetricWindow
from axisrl.runtime.parts import RunParts
from axisrl.runtime.trainer import StepReport
from axisrl.types import Metric


class Controller:
    """Trains ``parts`` until the configured number of updates.

    Setting ``interrupt`` ends the run at the next border, with a checkpoint.
    """

    def __init__(self, parts: RunParts, interrupt: asyncio.Event) -> None:
        self.parts = parts
        self.learners = needed(parts.learners, "trainer")
        self.interrupt = interrupt
        self.inside_window = False
        """True while the trainer is ahead of ``parts.state``: nothing may be saved then."""

    def report(self) -> list[str]:
        """Metrics and checkpoints say it all."""
        return []

    async def run(self) -> None:
        """The whole run. Raises ``Interrupted`` when asked to stop; the caller saves."""
        parts, train = self.parts, self.parts.config.train
        await self._settle()  # evaluation before the first update, or what a stopped run still owed
        await parts.timeline.window()  # what was before the first window is not counted
        while parts.state.step < train.updates:
            if self.interrupt.is_set():
                raise Interrupted
            window = await unless_interrupted(self.interrupt, self._collect())
            self.inside_window = True
            await self._update(window)
            await self._sync()
            self.inside_window = False
            await self._settle()

    async def _collect(self) -> Window:
        parts = self.parts
        parts.loggers.progress("rollout", 0, 0)
        if not parts.config.replays:
            await parts.memory.play()
        with parts.spans.span("rollout", step=parts.state.step + 1):
            return await parts.source.collect()

    async def _update(self, window: Window) -> None:
        """Take the window's optimizer steps. The last one's metrics stay pending until it is
        evaluated."""
        parts = self.parts
        metrics, per_sync = parts.measure(window), parts.config.train.updates_per_sync
        sampled = sum(one.sampled_tokens for one in window.played)
        batches, state = window.split(per_sync), parts.state
        with parts.spans.span("score", step=state.step + 1):
            advantages, scores = await self.learners.load_window(batches, state)
        metrics.add("time/score_s", Metric(value=parts.spans.last["score"], reduce="sum"))
        await parts.store.release(scores)
        for index, groups in enumerate(batches):
            parts.loggers.progress("train", index, per_sync)
            with parts.spans.span("train", step=state.step + 1):
                reports, state = await self.learners.step(index, state)
            self._announce(state.step, reports)
            parts.timeline.learnt(state.step, reports)
            shown = {m.id: advantages[m.id] for group in groups for m in group.members}
            await parts.record(state.step, window, groups, shown)
            pending = _merged(metrics, reports, parts.spans.last["train"])
            if state.entropy_coef is not None:
                pending["train/entropy_coef"] = state.entropy_coef
            if index + 1 < per_sync:
                parts.loggers.scalars(state.step, pending)
        parts.state = dataclasses.replace(
            state,
            source=parts.source.state_dict(),
            tokens=state.tokens + sampled,
            pending=pending,
        )

    async def _sync(self) -> None:
        parts, served = self.parts, self.parts.state.version
        version = served + 1
        parts.loggers.progress("sync", 0, 1)
        with parts.spans.span("sync", step=parts.state.step):
            updates = parts.config.train.updates_per_sync
            parts.state = await self.learners.reset_reference(parts.state, updates)
            # Last: an engine that is replaced later is brought to what was offered to all.
            await parts.memory.sync()
            await parts.engines.sync(self.learners.policy, (served, version))
        seconds = parts.spans.last["sync"]
        shares = await parts.timeline.window()
        pending = {**(parts.state.pending or {}), "time/sync_s": seconds, **shares}
        parts.state = dataclasses.replace(parts.state, version=version, pending=pending)
        parts.source.version = version
        parts.plugins.weights_updated(WeightsUpdated(version=version, seconds=seconds))

    async def _settle(self) -> None:
        """Evaluate if it is due, log the step, checkpoint if it is due."""
        parts, state = self.parts, self.parts.state
        if state.pending is None:
            return
        values = dict(state.pending)
        if parts.evaluation_due:
            values |= await unless_interrupted(self.interrupt, parts.evaluate())
        if state.step:
            values["train/tokens_total"] = state.tokens
            values["train/version"] = state.version
            values |= parts.recoveries()
        if values:
            parts.loggers.scalars(state.step, values)
        parts.state = dataclasses.replace(state, pending=None)
        if state.step and parts.checkpoint_due:
            await parts.save()

    def _announce(self, step: int, reports: Mapping[str, StepReport]) -> None:
        report = reports.get("loss") or reports["value"]
        stats = report.stats
        self.parts.plugins.batch_packed(
            BatchPacked(
                step=step,
                rows=report.rows,
                tokens=stats.tokens,
                trained_tokens=stats.trained_tokens,
                batches=report.batches,
            )
        )
        self.parts.plugins.step_finished(StepFinished(step=step, stats=stats))


def _merged(
    metrics: MetricWindow, reports: Mapping[str, StepReport], seconds: float
) -> dict[str, float]:
    """One step's numbers; rollout metrics were measured once a window and go with its first
    step. A backend calls what it measures ``loss/...``; the value model's goes to ``value/...``."""
    for prefix, report in reports.items():
        for name, metric in report.stats.metrics.items():
            metrics.add(f"{prefix}/{name.removeprefix('loss/')}", metric)
    report = reports.get("loss") or reports["value"]
    stats = report.stats
    metrics.add("time/train_s", Metric(value=seconds, reduce="sum"))
    metrics.add("train/rows", Metric(value=report.rows, reduce="sum"))
    metrics.add("train/batches", Metric(value=report.batches, reduce="sum"))
    metrics.add("train/tokens", Metric(value=stats.tokens, reduce="sum"))
    for age, count in enumerate(report.ages):
        name = "older" if age + 1 == len(report.ages) else f"age_{age}"
        share = Metric(value=count / max(sum(report.ages), 1), weight=sum(report.ages))
        metrics.add(f"rollout/staleness_{name}_frac", share)
    metrics.add("train/over_age_tokens", Metric(value=report.over_age_tokens, reduce="sum"))
    metrics.add("train/trained_tokens", Metric(value=stats.trained_tokens, reduce="sum"))
    metrics.add("train/tokens_per_s", Metric(value=stats.tokens / max(seconds, 1e-9)))
    return metrics.flush()
