"""Which request has which slot, and which tokens the next forward pass computes.

1. A slot remembers the tokens whose keys and values it holds, also after its request is over. A new
   request takes over the longest such prefix of its prompt, copied from another slot or in place.
2. While a running request is about to compute more of a waiting prompt, that prompt waits: the
   members of a group, which arrive together, compute their prompt once.
3. A pass has ``step_tokens`` rows. Unfinished prompts get them first, first come first served; each
   request that decodes gets one of those left, or waits. Requests then decode together and end
   together: letting the first ones run ahead would leave rows idle when they are over.

Plain numpy: it runs no model and knows no asyncio.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axisrl.runtime.stopping import StopRule
from axisrl.types import FinishReason, GenerateRequest, GenerateResult, IntArray

Indices = NDArray[np.int64]


@dataclass(eq=False, slots=True, kw_only=True)
class Job:
    """A request and what was sampled for it so far."""

    request: GenerateRequest
    rule: StopRule
    cached: int = 0
    """Prompt tokens whose keys and values were there already."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def result(self, finish_reason: FinishReason) -> GenerateResult:
        """What the request gets."""
        return GenerateResult(
            ids=np.asarray(self.ids, np.int32),
            logprobs=np.asarray(self.logprobs, np.float32),
            versions=np.asarray(self.versions, np.int32),
            finish_reason=finish_reason,
            cached_tokens=self.cached,
        )


class Copy(NamedTuple):
    """Copy the first ``length`` positions of slot ``source`` to slot ``target``."""

    source: int
    target: int
    length: int


class Run(NamedTuple):
    """``rows`` of a pass compute positions ``start``, ``start + 1``, ... of ``slot``."""

    slot: int
    start: int
    rows: Indices


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One forward pass. Rows that no run names are idle."""

    copies: tuple[Copy, ...]
    rows: int
    ids: Indices
    """int64[rows]"""
    decode: tuple[Run, ...]
    """Runs of one row, row i being slot i."""
    chunks: tuple[Run, ...]
    """Runs of several rows."""
    sampled: Mapping[int, Job]
    """By slot: the requests whose last known token this pass computes."""

    @property
    def runs(self) -> tuple[Run, ...]:
        """All of them."""
        return self.decode + self.chunks


class Scheduler:
    """Slots 0 .. ``slots`` - 1 of ``context`` tokens each; passes of at most ``step_tokens``."""

    def __init__(self, slots: int, context: int, step_tokens: int) -> None:
        self.active: dict[int, Job] = {}
        self._step_tokens = step_tokens
        self._known = np.zeros((slots, context), np.int32)
        self._total = np.zeros(slots, np.int64)
        self._filled = np.zeros(slots, np.int64)
        self._used = np.zeros(slots, np.int64)
        self._clock = 0
        self._copies: list[Copy] = []

    @property
    def context(self) -> int:
        """Most tokens of a slot."""
        return self._known.shape[1]

    def admit(self, waiting: Iterable[Job]) -> list[Job]:
        """Give slots to those of ``waiting`` that can start now; returns them."""
        admitted = []
        for job in waiting:
            if len(self.active) == len(self._total):
                break
            if self._admit(job):
                admitted.append(job)
        return admitted

    def plan(self, fixed: bool) -> Plan:
        """The next pass over the active requests; ``fixed`` always has ``step_tokens`` rows."""
        runs = self._lengths()
        singles = [slot for slot, length in runs.items() if length == 1]
        needed = max(sum(runs.values()), max(singles, default=-1) + 1)
        rows = self._step_tokens if fixed else needed
        free = np.setdiff1d(np.arange(rows), singles)
        ids = np.zeros(rows, np.int64)
        decode, chunks, at = [], [], 0
        for slot, length in runs.items():
            start = int(self._filled[slot])
            if length == 1:
                run = Run(slot, start, np.asarray([slot]))
                decode.append(run)
            else:
                run = Run(slot, start, free[at : at + length])
                chunks.append(run)
                at += length
            ids[run.rows] = self._known[slot, start : start + length]
        copies, self._copies = tuple(self._copies), []
        return Plan(
            copies=copies,
            rows=rows,
            ids=ids,
            decode=tuple(decode),
            chunks=tuple(chunks),
            sampled={
                slot: self.active[slot]
                for slot, length in runs.items()
                if self._filled[slot] + length == self._total[slot]
            },
        )

    def computed(self, plan: Plan) -> None:
        """The pass is done: its keys and values are in the cache."""
        for run in plan.runs:
            if run.slot in self.active:
                self._filled[run.slot] = run.start + len(run.rows)

    def append(self, slot: int, token: int) -> bool:
        """Add a sampled token to a slot's request; False when no further one fits."""
        self._known[slot, self._total[slot]] = token
        self._total[slot] += 1
        return bool(self._total[slot] < self.context)

    def release(self, slot: int) -> None:
        """End a slot's request; its keys and values stay until the slot is needed."""
        del self.active[slot]
        self._total[slot] = self._filled[slot]
        self._clock += 1
        self._used[slot] = self._clock

    def forget(self) -> None:
        """No slot holds anything any more (other weights, a failed pass); none may be active."""
        self._filled[:] = 0
        self._total[:] = 0
        self._copies.clear()

    def spoil(self, slot: int) -> None:
        """What an active slot holds must not be used again; its request is about to be released."""
        self._filled[slot] = 0

    def _admit(self, job: Job) -> bool:
        prompt = job.request.prompt_ids
        shared = np.minimum(self._shared(prompt), len(prompt) - 1)
        present = np.minimum(shared, self._filled)
        source = int(present.argmax())
        length = int(present[source])
        if any(shared[slot] > length for slot in self.active):
            return False
        target = self._target(source, length)
        if target != source and length:
            self._copies.append(Copy(source, target, length))
        self._known[target, : len(prompt)] = prompt
        self._total[target] = len(prompt)
        self._filled[target] = length
        self.active[target] = job
        job.cached = length
        return True

    def _target(self, source: int, length: int) -> int:
        """The slot to use: the source itself where that loses nothing, else the idle slot that was
        idle longest."""
        idle = [slot for slot in range(len(self._total)) if slot not in self.active]
        if source in idle and length == self._filled[source]:
            return source
        return min(idle, key=lambda slot: (self._used[slot], slot))

    def _shared(self, prompt: IntArray) -> Indices:
        """int64[slots]: how many first tokens of ``prompt`` each slot knows."""
        equal = self._known[:, : len(prompt)] == prompt
        first = np.where(equal.all(axis=1), len(prompt), equal.argmin(axis=1))
        return np.minimum(first, self._total)

    def _lengths(self) -> dict[int, int]:
        """Tokens that slots compute in the next pass; those that have to wait are not in it."""
        left = {slot: int(self._total[slot] - self._filled[slot]) for slot in self.active}
        spare = self._step_tokens
        lengths = {}
        for slot in sorted(left, key=lambda slot: left[slot] == 1):
            if spare:
                lengths[slot] = min(left[slot], spare)
                spare -= lengths[slot]
        return lengths
