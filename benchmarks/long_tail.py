"""What long-tailed rollouts cost a synchronous run, and what ``schedule: async`` leaves of it.

    python benchmarks/long_tail.py
    python benchmarks/long_tail.py --tail 4 --staleness 2 --json out.json

A simulation: the real collector, flow, pool and partial rollouts on a clock that jumps. The engine
has ``--slots`` slots of one token a millisecond each; most rollouts have about ``--tokens`` tokens,
one in twenty ``--tail`` times as many. Training a window takes ``--train`` seconds, a weight update
``--sync``. Every schedule plays rollouts of the same lengths.

The bound is what no schedule can beat: the tokens of the windows over all slots, or the training
time, whichever is longer. Left out: what a longer context costs, prompts, weight updates that
compete with generation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from axisrl.config.schema import (
    ModelConfig,
    RolloutConfig,
    RunConfig,
    SamplingConfig,
    ScheduleConfig,
    TrainConfig,
    Use,
)
from axisrl.runtime.collect import Collector, WindowSource
from axisrl.runtime.flow import RolloutFlow
from axisrl.runtime.gate import Gate
from axisrl.runtime.partial import continued, joined
from axisrl.runtime.pool import RolloutPool
from axisrl.runtime.rollout import RolloutRequest
from axisrl.runtime.sampler import TaskSampler
from axisrl.runtime.supervisor import Post
from axisrl.runtime.workers import Workers
from axisrl.types import (
    GenerateRequest,
    GenerateResult,
    Handle,
    Outcome,
    RolloutSummary,
    SamplingParams,
    StoreStats,
    Task,
)
from report import short, table, today
from virtual_time import run_virtual

TOKEN_S = 0.001
GROUP = 8
TAIL_SHARE = 0.05
ANY = Use(use="simulated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is simulated."""

    slots: int = 64
    tokens: int = 100
    tail: float = 10.0
    windows: int = 60
    groups: int = 8
    """Groups of a window."""
    train_s: float = 0.1
    sync_s: float = 0.01

    def length(self, request: RolloutRequest) -> int:
        """Tokens of a rollout: from its place alone, whatever the schedule."""
        rng = np.random.default_rng([request.group, request.member])
        factor = self.tail if rng.random() < TAIL_SHARE else 1.0
        return max(1, round(self.tokens * factor * rng.uniform(0.8, 1.2)))


class SimulatedEngine:
    """A gate for weight updates, and an interruption that hands back what was said."""

    def __init__(self, *, waits: bool) -> None:
        self._gate = Gate()
        self._waits = waits
        self._interrupt = asyncio.Event()
        self.version = 0
        self.tokens = 0

    async def generate(self, call: GenerateRequest) -> GenerateResult:
        """Sample until the budget is used up or somebody interrupts."""
        async with self._gate.inside():
            wanted = call.sampling.max_tokens - call.sampled_before
            begun = asyncio.get_running_loop().time()
            stop, version = self._interrupt, self.version
            try:
                async with asyncio.timeout(wanted * TOKEN_S):
                    await stop.wait()
            except TimeoutError:
                said = wanted
            else:
                said = int((asyncio.get_running_loop().time() - begun) / TOKEN_S)
        said = min(said, wanted)
        self.tokens += said
        return GenerateResult(
            ids=np.zeros(said, np.int32),
            logprobs=np.zeros(said, np.float32),
            versions=np.full(said, version, np.int32),
            finish_reason="stop" if said == wanted else "abort",
        )

    async def update(self, seconds: float) -> None:
        """Take new weights once no call runs."""
        self._gate.shut()
        if not self._waits:
            self._interrupt.set()
            self._interrupt = asyncio.Event()
        await self._gate.empty()
        await asyncio.sleep(seconds)
        self.version += 1
        self._gate.open()


class SimulatedWorker:
    """A rollout worker: as many episodes at once as the engine has slots, one model call each.

    An episode keeps its slot while it is interrupted, as in :class:`axisrl.runtime.rollout`.
    """

    def __init__(self, workload: Workload, engine: SimulatedEngine) -> None:
        self._workload = workload
        self._engine = engine
        self._slots = asyncio.Semaphore(workload.slots)

    def kill(self) -> None:
        """Nothing dies here."""

    async def call(self, method: str, *args: Any) -> Any:
        """``play``."""
        (request,) = args
        call = GenerateRequest(
            id=request.id,
            prompt_ids=np.zeros(1, np.int32),
            sampling=SamplingParams(max_tokens=self._workload.length(request)),
            seed=0,
        )
        pieces: list[GenerateResult] = []
        async with self._slots:
            while not pieces or pieces[-1].finish_reason == "abort":
                pieces.append(await self._engine.generate(continued(call, pieces)))
        whole = joined(pieces)
        return RolloutSummary(
            id=request.id,
            task_id=request.task.id,
            group=request.group,
            member=request.member,
            outcome=Outcome.COMPLETED,
            reward=0.0,
            sampled_tokens=len(whole.ids),
            versions=(int(whole.versions.min()), int(whole.versions.max())),
            trace=_NOWHERE,
        )


_NOWHERE = Handle(store="none", key="", shape=(0,), dtype="|u1", owner="rollout-0", checksum=0)
"""Nobody reads the simulated tokens."""


class _Tasks:
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Task:
        return Task(id=str(index), data={})


class _Store:
    async def stats(self) -> StoreStats:
        return StoreStats(items=0, bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """One schedule, simulated."""

    seconds: float
    tokens: int
    """Of the windows that were trained on."""
    over_age: float
    """Share of trained rollouts whose oldest token was older than the schedule allows."""
    bound: float
    """Least seconds for these windows under any schedule."""


def simulate(workload: Workload, schedule: ScheduleConfig) -> Outcomes:
    """Play and train ``workload.windows`` windows."""
    trained, seconds = run_virtual(_run(workload, schedule))
    tokens = sum(one.sampled_tokens for window in trained for one, _ in window)
    old = [
        version - one.versions[0] > schedule.max_staleness for w in trained for one, version in w
    ]
    generation = tokens * TOKEN_S / workload.slots
    bound = max(generation, workload.windows * (workload.train_s + workload.sync_s))
    return Outcomes(seconds=seconds, tokens=tokens, over_age=float(np.mean(old)), bound=bound)


async def _run(
    workload: Workload, schedule: ScheduleConfig
) -> list[list[tuple[RolloutSummary, int]]]:
    config = _config(workload, schedule)
    asynchronous = schedule.kind == "async"
    engine = SimulatedEngine(waits=asynchronous and schedule.partial == "off")
    pool = RolloutPool(Workers([Post("rollout 0", SimulatedWorker(workload, engine))]), _ignore)
    sampler = TaskSampler(_Tasks(), 0, config.sampler)
    source: WindowSource = Collector(config, pool, sampler)
    if asynchronous:
        source = RolloutFlow(config, pool, sampler, _Store())  # type: ignore[arg-type]
    trained = []
    for version in range(1, workload.windows + 1):
        window = await source.collect()
        trained.append([(m, source.version) for group in window.groups for m in group.members])
        await asyncio.sleep(workload.train_s)
        await engine.update(workload.sync_s)
        source.version = version
    await source.close()
    return trained


def _ignore(summary: RolloutSummary, done: int, total: int) -> None:
    """Nobody watches."""


def _config(workload: Workload, schedule: ScheduleConfig) -> RunConfig:
    return RunConfig(
        model=ModelConfig(name="simulated"),
        dataset=ANY,
        env=ANY,
        engine=ANY,
        trainer=ANY,
        advantage=ANY,
        loss=ANY,
        schedule=schedule,
        rollout=RolloutConfig(group_size=GROUP, sampling=SamplingConfig()),
        train=TrainConfig(updates=workload.windows, batch_size=workload.groups * GROUP),
    )


def schedules(staleness: int) -> dict[str, ScheduleConfig]:
    """What is compared."""
    made: Callable[..., ScheduleConfig] = ScheduleConfig
    return {
        "sync": made(),
        "async, partial: off": made(kind="async", max_staleness=staleness),
        "async, partial: resume": made(kind="async", max_staleness=staleness, partial="resume"),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate and print."""
    options = _options().parse_args(arguments)
    workload = Workload(
        slots=options.slots,
        tokens=options.tokens,
        tail=options.tail,
        windows=options.windows,
        train_s=options.train,
        sync_s=options.sync,
    )
    found = {name: simulate(workload, s) for name, s in schedules(options.staleness).items()}
    base = found["sync"].tokens / found["sync"].seconds
    rows = [
        [
            name,
            short(one.tokens / one.seconds),
            f"{one.bound / one.seconds:.0%}",
            f"{one.tokens / one.seconds / base:.2f}",
            f"{one.over_age:.1%}",
        ]
        for name, one in found.items()
    ]
    print(f"{today()}: {workload}, max_staleness {options.staleness}\n")
    print(table(("schedule", "trained tokens/s", "of the bound", "x sync", "over age"), rows))
    if options.json:
        facts = {name: {f: getattr(o, f) for f in o.__slots__} for name, o in found.items()}
        Path(options.json).write_text(json.dumps(facts, indent=1))


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    plain = Workload()
    parser.add_argument("--slots", type=int, default=plain.slots)
    parser.add_argument("--tokens", type=int, default=plain.tokens)
    parser.add_argument("--tail", type=float, default=plain.tail)
    parser.add_argument("--windows", type=int, default=plain.windows)
    parser.add_argument("--train", type=float, default=plain.train_s)
    parser.add_argument("--sync", type=float, default=plain.sync_s)
    parser.add_argument("--staleness", type=int, default=8)
    parser.add_argument("--json", default="")
    return parser


if __name__ == "__main__":
    main()
