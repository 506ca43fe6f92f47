"""Tokens a second of the whole rollout path (environment, conversation, engine, verifier, reward,
trace and record into the store) beside SGLang alone, on the same prompts and lengths, in the same
SGLang process, taking turns.

Run: python benchmarks/sglang_rollout.py --model qwen2.5-1.5b --concurrency 128 512 --short 8000
     python benchmarks/sglang_rollout.py --workers 4     engine and workers are processes, on Ray
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from axisrl.config.base import NoConfig
from axisrl.config.load import RunRequest, load_run
from axisrl.plugins.manager import PluginManager
from axisrl.protocols import HandleStore
from axisrl.runtime.actors import Actor, ActorBoot, ActorHandle
from axisrl.runtime.chat import Conversation, load_tokenizer
from axisrl.runtime.engine import EngineActor
from axisrl.runtime.garbage import settled
from axisrl.runtime.placement import make_placement
from axisrl.runtime.rollout import RolloutActor, RolloutRequest
from axisrl.types import (
    BuildContext,
    GenerateResult,
    ModelSpec,
    RolloutSummary,
    SamplingParams,
    Task,
)
from report import Spread, markdown_row, short, today, versions
from sglang_parts import PORTABLE, SHAPES, shaped_folder
from sglang_raw_host import Done, Job
from sums_env import Sums

ENV = Path(__file__).parent / "sums_env.py"
RUN = {
    "mode": "rollout",
    "env": {"use": "sums-env/sums"},
    "verifiers": {"correct": {"use": "gsm8k/math"}},
    "rewards": {"main": {"use": "core/sum"}},
    "train": {"updates": 1},
    "rollout": {"max_inflight": 10_000, "max_turns": 3, "sampling": {"max_tokens": 1024}},
}


@dataclass(frozen=True, slots=True)
class Load:
    """What both sides do."""

    rollouts: int
    concurrency: int
    turns: int
    tokens: int
    """Sampled in a turn, on average: each rollout has its own number, half to one and a half
    times this, so that they do not go in step."""

    def lengths(self) -> list[int]:
        """One a rollout."""
        draw = random.Random(0)
        return [draw.randint(self.tokens // 2, self.tokens * 3 // 2) for _ in range(self.rollouts)]


class RawEngineActor(EngineActor):
    """An engine whose SGLang process also answers without it."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        super().__init__(boot, store)
        engine: Any = self._engine
        engine.host_module = "sglang_raw_host"

    async def raw(self, jobs: list[Job], concurrency: int) -> Done:
        """See ``sglang_raw_host``."""
        engine: Any = self._engine
        return Done(*await engine._running().process.call("raw", jobs, concurrency))


class Crew(NamedTuple):
    """What plays, as a run starts it."""

    boot: ActorBoot
    engine: ActorHandle
    workers: list[ActorHandle]
    store: HandleStore


def main() -> None:
    """Print a row for each load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen2.5-1.5b", help="a shape, or a model's folder")
    parser.add_argument("--concurrency", nargs="*", type=int, default=[128, 512])
    parser.add_argument("--rounds", type=int, default=4, help="rollouts for each that runs at once")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument(
        "--short", type=int, default=8000, help="rollouts of 3 turns, 16 tokens each"
    )
    parser.add_argument("--short-concurrency", nargs="*", type=int, default=[128, 512])
    parser.add_argument("--workers", type=int, default=0, help="on Ray; 0: in this process")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--unseeded", action="store_true", help="engine.seeded: false")
    parser.add_argument("--arguments", default="{}", help="more server arguments, as JSON")
    args = parser.parse_args()
    # The SGLang process imports the module beside this one.
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with tempfile.TemporaryDirectory() as work:
        asyncio.run(_measure(args, Path(work)))
    print(versions(("torch", "sglang", "transformers")))


async def _measure(args: argparse.Namespace, work: Path) -> None:
    loads = [Load(args.rounds * each, each, 1, args.tokens) for each in args.concurrency]
    if args.short:
        loads += [Load(args.short, each, 3, 16) for each in args.short_concurrency]
    arguments = {**PORTABLE, "cuda_graph_max_bs_decode": max(load.concurrency for load in loads)}
    if args.model in SHAPES:
        model = shaped_folder(args.model, work)
        arguments["load_format"] = "dummy"
    else:
        model = ModelSpec(name="benchmark", path=Path(args.model), device="cuda")
    arguments |= json.loads(args.arguments)
    engine = {"use": "sglang/engine", "seeded": not args.unseeded, "sglang": arguments}
    async with _crew(model, engine, args.workers, work) as crew:
        for load in loads:
            raws, ours = await _side_by_side(crew, load, args.repeat)
            share = Spread.of(ours).median / Spread.of(raws).median
            kind, workers = "no" if args.unseeded else "yes", str(args.workers or "-")
            row = [today(), args.model, kind, workers, str(load.concurrency), f"{load.rollouts:,}"]
            row += [f"{load.turns} x {load.tokens}", str(Spread.of(raws)), str(Spread.of(ours))]
            print(markdown_row([*row, f"{100 * share:.1f} %"]), flush=True)


@asynccontextmanager
async def _crew(
    model: ModelSpec, engine: Mapping[str, Any], workers: int, work: Path
) -> AsyncIterator[Crew]:
    """An engine and workers, in this process or as Ray actors."""
    boot = _boot(model, engine, workers, work)
    store = Actor(boot).store
    placement = make_placement(boot.config.placement, store)
    serving = None
    try:
        serving = await placement.spawn(RawEngineActor, replace(boot, role="engine"))
        await serving.call("start")
        peers = {"engine": [serving]}
        boots = [replace(boot, role="rollout", rank=rank) for rank in range(workers or 1)]
        spawned = [placement.spawn(RolloutActor, each, peers) for each in boots]
        yield Crew(boot, serving, list(await asyncio.gather(*spawned)), store)
    finally:
        if serving is not None:
            await serving.call("stop")
        await placement.close()
        await store.close()


def _boot(model: ModelSpec, engine: Mapping[str, Any], workers: int, work: Path) -> ActorBoot:
    placement: dict[str, Any] = {"kind": "inline"}
    if workers:
        gpus = 1 if torch.cuda.is_available() else 0
        placement = {"kind": "ray", "cpus_per_actor": 0.1, "gpus_engine": gpus}
    run: dict[str, Any] = {
        **RUN,
        "engine": dict(engine),
        "model": {"name": str(model.path), "dtype": model.dtype, "device": model.device},
        "dataset": {"use": "core/tasks", "path": str(work / "tasks.jsonl")},
        "placement": placement,
    }
    (work / "tasks.jsonl").write_text(json.dumps(_sum(0)))
    path = work / "rollout.yaml"
    path.write_text(json.dumps(run))  # JSON is YAML
    manager = PluginManager.discover(local=[ENV])
    config = load_run(RunRequest(recipe=str(path)), manager).config
    return ActorBoot(
        role="driver", rank=0, manifest=manager.manifest(), config=config, run_dir=work, model=model
    )


async def _side_by_side(crew: Crew, load: Load, repeat: int) -> tuple[list[float], list[float]]:
    """Tokens a second of SGLang alone and of the whole path, ``repeat`` times after a short one."""
    jobs = await _jobs(crew.boot, load)
    raws, ours = [], []
    for each in [replace(load, rollouts=load.concurrency), *[load] * repeat]:
        done: Done = await crew.engine.call("raw", jobs[: each.rollouts], each.concurrency)
        whole = await _whole(crew, each)
        _require_alike(done, whole)
        raws.append(done.sampled / done.seconds)
        ours.append(whole.sampled / whole.seconds)
        told = f"{each.rollouts:,} rollouts: SGLang alone {short(raws[-1])} tokens/s"
        print(f"{told}, the whole path {short(ours[-1])}", flush=True)
    return raws[1:], ours[1:]


def _require_alike(raw: Done, whole: Done) -> None:
    """Random weights say the model's end token now and then: a few tokens may be missing."""
    for one, other in ((raw.sampled, whole.sampled), (raw.context, whole.context)):
        if abs(one - other) > 0.02 * one:
            raise ValueError(f"not the same work: SGLang alone {raw}, the whole path {whole}")


def _sum(number: int) -> dict[str, str]:
    left, right = 100 + number % 900, 100 + number // 900
    return {"question": f"{left} + {right} =", "answer": str(left + right)}


async def _jobs(boot: ActorBoot, load: Load) -> list[Job]:
    """What the whole path will send, without the sampled tokens."""
    tokenizer, context = load_tokenizer(boot.model.path), BuildContext(run_dir=boot.run_dir)
    answer = GenerateResult(
        ids=np.full(1, 10, np.int32),
        logprobs=np.zeros(1, np.float32),
        versions=np.zeros(1, np.int32),
        finish_reason="length",
    )
    jobs = []
    for number, tokens in enumerate(load.lengths()):
        env, conversation = Sums(NoConfig(), context), Conversation(tokenizer)
        observation = await env.reset(_task(number, load))
        while observation is not None:
            conversation.observe(observation)
            action = conversation.act(answer, SamplingParams(), 0)
            observation = (await env.step(action)).observation
        nodes = [node.ids.tolist() for node in conversation.trace if node.kind != "sampled"]
        jobs.append(Job(nodes[0], nodes[1:], tokens))
    return jobs


def _task(number: int, load: Load) -> Task:
    return Task(id=str(number), data={**_sum(number), "turns": load.turns})


async def _whole(crew: Crew, load: Load) -> Done:
    """As in a run, each worker with its share of the rollouts that go on at once."""
    sampling = SamplingParams()
    requests = iter(
        [
            RolloutRequest(
                stream="train",
                task=_task(number, load),
                group=number,
                member=0,
                sampling=replace(sampling, max_tokens=tokens),
            )
            for number, tokens in enumerate(load.lengths())
        ]
    )
    summaries: list[RolloutSummary] = []

    async def play(worker: ActorHandle) -> None:
        for request in requests:
            summaries.append(await worker.call("play", request))

    players = [crew.workers[at % len(crew.workers)] for at in range(load.concurrency)]
    with settled():
        start = time.perf_counter()
        await asyncio.gather(*map(play, players))
        seconds = time.perf_counter() - start
    failed = next((each.error for each in summaries if not each.outcome.trainable), "")
    if failed:
        raise ValueError(f"a rollout failed: {failed}")
    handles = [handle for each in summaries for handle in (each.trace, each.record) if handle]
    await crew.store.release(handles)
    sampled = sum(each.sampled_tokens for each in summaries)
    return Done(sampled, sum(each.prompt_tokens for each in summaries), seconds)


if __name__ == "__main__":
    main()
