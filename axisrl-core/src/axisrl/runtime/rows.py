"""RowsActor: what every actor that holds a model and reads rollouts shares.

It pulls traces by handle, packs their rows and lays what a backend computes for each token back
over the trajectories. Arrays between such actors travel through the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from axisrl.protocols import HandleStore, Packer
from axisrl.runtime.actors import Actor, ActorBoot
from axisrl.runtime.credit import LoadedGroup, Member, turns_of
from axisrl.runtime.trajectory import Trajectory
from axisrl.trace import Trace
from axisrl.types import (
    FloatArray,
    Handle,
    PackBudget,
    PackedBatch,
    RolloutGroup,
    RolloutSummary,
    Sample,
    Values,
)

Scores = Mapping[str, Handle]
"""Rollout id -> array over its trained tokens."""
PerBatch = Callable[[Sequence[PackedBatch]], Sequence[FloatArray]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowInput:
    """A window as the driver hands it out: ids, scores and handles."""

    updates: Sequence[Sequence[RolloutGroup]]
    """The groups of each optimizer step."""
    scores: Mapping[str, Scores] = field(default_factory=dict)
    """``values``, ``reference_logprobs``, ``teacher_logprobs``: what other models said."""
    oldest_version: int = 0
    """Tokens of older weight versions are not trained on."""
    version: int | None = None
    """Weight version that learns, where tokens may be older; None where all are of it."""


class RowsActor(Actor):
    """Base; a subclass holds a backend or an engine."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        super().__init__(boot, store)
        self.packer: Packer = self.build("packer", boot.config.packer, "packer")
        self.budget = PackBudget(max_tokens=boot.config.train.max_tokens_per_batch)

    async def fetch(self, window: WindowInput) -> list[list[LoadedGroup]]:
        """Every group of the window with its members' rows, turns and scores.

        Trajectories are numbered within their update, so the numbers fit any index type.
        """
        return [await self._fetch_update(groups, window.scores) for groups in window.updates]

    async def trajectories(self, groups: Sequence[RolloutGroup]) -> list[tuple[str, Trajectory]]:
        """Id and rows of every rollout, numbered in this order."""
        members = [member for group in groups for member in group.members]
        return [(one.id, await self.trajectory(one, at)) for at, one in enumerate(members)]

    async def trajectory(self, summary: RolloutSummary, number: int) -> Trajectory:
        """The rows of one rollout."""
        if summary.trace is None:
            raise ValueError(f"rollout {summary.id} has no trace")
        payload = await self.store.get(summary.trace)
        return Trajectory(Trace.from_bytes(payload.tobytes()), number, summary.routing)

    def per_token(
        self,
        samples: Sequence[Sample],
        function: PerBatch,
        packed: Sequence[PackedBatch] | None = None,
    ) -> list[FloatArray]:
        """``function`` of the packed samples, one array (T,) a sample. Given only some batches of
        them in ``packed``, the other samples get NaN."""
        if packed is None:
            packed = self.packer.pack(samples, self.budget)
        found: list[FloatArray] = [np.full(len(one.ids), np.nan, np.float32) for one in samples]
        for batch, values in zip(packed, function(packed), strict=True):
            for row, part in zip(batch.rows, self.packer.unpack(batch, values), strict=True):
                found[row] = part
        return found

    async def _fetch_update(
        self, groups: Sequence[RolloutGroup], scores: Mapping[str, Scores]
    ) -> list[LoadedGroup]:
        loaded, number = [], 0
        for group in groups:
            members = []
            for summary in group.members:
                members.append(await self._fetch_member(summary, number, scores))
                number += 1
            turns = tuple(member.turns for member in members)
            whole = RolloutGroup(
                group=group.group, task_id=group.task_id, members=group.members, turns=turns
            )
            loaded.append(LoadedGroup(group=whole, members=tuple(members)))
        return loaded

    async def _fetch_member(
        self, summary: RolloutSummary, number: int, scores: Mapping[str, Scores]
    ) -> Member:
        trajectory = await self.trajectory(summary, number)
        if summary.reward is None:
            raise ValueError(f"rollout {summary.id} has no reward and is in a group")
        per_turn = None
        if summary.turn_rewards is not None:
            per_turn = await self.store.get(summary.turn_rewards)
        arrays = {name: await self.store.get(found[summary.id]) for name, found in scores.items()}
        values = arrays.pop("values", None)
        return Member(
            id=summary.id,
            trajectory=trajectory,
            turns=turns_of(trajectory, summary.reward, per_turn),
            values=None if values is None else Values(tokens=values[:-1], last=float(values[-1])),
            scores=arrays,
        )
