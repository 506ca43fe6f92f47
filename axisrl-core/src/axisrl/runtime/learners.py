"""Learners: the models a window is learnt with, as the driver holds them.

1. Models that only look (value model, reference, teacher) score the window first, at once, or one
   after another where they share a GPU (:mod:`axisrl.runtime.memory`).
2. Policy and value model load it, then take its optimizer steps; during ``value.warmup_updates``,
   which are whole windows, the value model alone does, and nobody scores for the policy.
3. The entropy bonus follows the entropy of the whole global batch; the reference may become the
   present policy.

What must survive a resume is in :class:`axisrl.runtime.checkpoint.RunState`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from axisrl.config.schema import EntropyConfig, RunConfig
from axisrl.runtime.actors import ActorHandle
from axisrl.runtime.checkpoint import RunState
from axisrl.runtime.memory import ENGINE_PARTS, TRAINER_PARTS, MemoryTurns
from axisrl.runtime.rows import WindowInput
from axisrl.runtime.trainer import StepReport
from axisrl.runtime.weights import sync_weights
from axisrl.types import Handle, Metric, RolloutGroup

_SAID_BY = {
    "value": "values",
    "reference": "reference_logprobs",
    "teacher": "teacher_logprobs",
}
"""Model -> the column its scores become."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learners:
    """Handles of a run's models, engines aside."""

    config: RunConfig
    memory: MemoryTurns
    policy: ActorHandle
    value: ActorHandle | None = None
    reference: ActorHandle | None = None
    teacher: ActorHandle | None = None

    async def start(self) -> None:
        """Load every model."""
        updates, teacher = self.config.train.updates, self.config.teacher
        await self.policy.call("start", updates - self._warmup)
        await self.memory.add_model("policy", self.policy)
        if self.value:
            await self.value.call("start", updates)
            await self.memory.add_model("value", self.value)
        if self.reference:
            await self.reference.call("start")
            await self.memory.add_model("reference", self.reference)
        if self.teacher:
            await self.teacher.call("start")
            parts = ENGINE_PARTS if teacher and teacher.engine else TRAINER_PARTS
            await self.memory.add_model("teacher", self.teacher, parts)

    async def stop(self) -> None:
        """Free every model."""
        there = (self.policy, self.value, self.reference, self.teacher)
        await asyncio.gather(*(actor.call("stop") for actor in there if actor))

    async def load_window(
        self, updates: Sequence[Sequence[RolloutGroup]], state: RunState
    ) -> tuple[dict[str, float], list[Handle]]:
        """Score the window and hand it to whoever learns from it; returns the mean advantage of
        each rollout and the handles of the scores, which nobody needs afterwards."""
        groups = [group for update in updates for group in update]
        trains = state.step >= self._warmup
        scorers = {
            "value": self.value,
            "reference": self.reference if trains else None,
            "teacher": self.teacher if trains else None,
        }
        there = {name: actor for name, actor in scorers.items() if actor}
        found = await asyncio.gather(*(self._score(*each, groups) for each in there.items()))
        scores = {_SAID_BY[name]: said for name, said in zip(there, found, strict=True)}
        window = WindowInput(updates=updates, scores=scores)
        schedule = self.config.schedule
        if schedule.kind == "async":
            oldest = state.version - schedule.max_staleness
            window = dataclasses.replace(window, oldest_version=oldest, version=state.version)
        loads = [self.value.call("load_window", window)] if self.value else []
        loads += [self._load_policy(window)] if trains else []
        means = await asyncio.gather(*loads)
        return means[-1], [handle for each in found for handle in each.values()]

    async def _score(
        self, name: str, actor: ActorHandle, groups: Sequence[RolloutGroup]
    ) -> dict[str, Handle]:
        async with self.memory.turn(name):
            scores: dict[str, Handle] = await actor.call("score", groups)
            return scores

    async def _load_policy(self, window: WindowInput) -> dict[str, float]:
        means: dict[str, float]
        if len(window.updates) == 1:  # no row has to pass through the model
            means = await self.policy.call("load_window", window)
            return means
        async with self.memory.turn("policy"):
            means = await self.policy.call("load_window", window)
            return means

    async def step(self, index: int, state: RunState) -> tuple[dict[str, StepReport], RunState]:
        """Take update ``index`` of the window, which is step ``state.step + 1``.

        Returns the report of each model that learnt, the policy's under ``loss`` and the value
        model's under ``value``, and the state after the step.
        """
        state = dataclasses.replace(state, step=state.step + 1)
        reports: dict[str, StepReport] = {}
        if self.value:
            async with self.memory.turn("value", optimizer=True):
                reports["value"] = await self.value.call("step", index)
        if state.step > self._warmup:
            entropy = self.config.entropy
            if entropy.target is not None:
                await self.policy.call("set_entropy_coef", _paid(entropy, state))
            async with self.memory.turn("policy", optimizer=True):
                reports["loss"] = await self.policy.call("step", index)
            measured = reports["loss"].stats.metrics.get("loss/entropy")
            state = _controlled(entropy, state, measured)
        return reports, state

    async def reset_reference(self, state: RunState, steps: int) -> RunState:
        """Make the reference the present policy where that fell due in the last ``steps``."""
        every = self.config.kl.reset_every
        if not self.reference or not every or state.step // every == (state.step - steps) // every:
            return state
        timeout = self.config.placement.sync_timeout_s
        versions = (state.reference_step, state.step)
        async with self.memory.turn("policy", "reference"):
            await sync_weights(self.policy, {"reference": self.reference}, versions, timeout)
        return dataclasses.replace(state, reference_step=state.step)

    def saved(self, state: RunState) -> Mapping[str, ActorHandle]:
        """Folder in a checkpoint -> whose it is. A reference that still is the model the run
        started from is not saved."""
        found = {"trainer": self.policy}
        if self.value:
            found["value"] = self.value
        if self.reference and state.reference_step:
            found["reference"] = self.reference
        return found

    async def load(self, checkpoint: Path, state: RunState) -> None:
        """Bring every model to a saved state."""
        for name, actor in self.saved(state).items():
            await actor.call("load", checkpoint / name)

    @property
    def _warmup(self) -> int:
        return self.config.value.warmup_updates if self.config.value else 0


def _paid(config: EntropyConfig, state: RunState) -> float:
    """No bonus while there is enough entropy."""
    enough = state.entropy is not None and state.entropy >= (config.target or 0.0)
    return 0.0 if enough else _coef(config, state)


def _coef(config: EntropyConfig, state: RunState) -> float:
    return config.coef if state.entropy_coef is None else state.entropy_coef


def _controlled(config: EntropyConfig, state: RunState, measured: Metric | None) -> RunState:
    """The coefficient one ``step`` towards the target, from the global batch's mean entropy."""
    if config.target is None or measured is None:
        return state
    move = config.step if measured.value < config.target else -config.step
    coef = min(max(_coef(config, state) + move, 0.0), config.max_coef)
    return dataclasses.replace(state, entropy=measured.value, entropy_coef=coef)
