"""Tokens a second of the whole rollout path (environment, conversation, engine, verifier, reward,
trace and record into the store) beside SGLang alone, on the same prompts and lengths, in the same
SGLang process, taking turns.

Run: python benchmarks/sglang_rollout.py --model qwen2.5-1.5b --concurrency 128 512 --short 8000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from axisrl.config.load import LoadedConfig, RunRequest, load_run
from axisrl.plugins.manager import PluginManager
from axisrl.runtime.actors import ActorBoot
from axisrl.runtime.chat import Conversation
from axisrl.runtime.garbage import settled
from axisrl.runtime.rollout import RolloutActor, RolloutRequest
from axisrl.types import BuildContext, GenerateResult, ModelSpec, SamplingParams, Task
from axisrl_sglang.config import EngineConfig
from axisrl_sglang.engine import SglangEngine
from report import Spread, markdown_row, short, today, versions
from sglang_parts import PORTABLE, SHAPES, shaped_folder
from sglang_raw_host import Done, Job
from sums_env import Sums, SumsConfig

ENV = Path(__file__).parent / "sums_env.py"
RUN = {
    "mode": "rollout",
    "verifiers": {"correct": {"use": "gsm8k/math"}},
    "rewards": {"main": {"use": "core/sum"}},
    "engine": {"use": "sglang/engine"},
    "train": {"updates": 1},
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


class RawEngine(SglangEngine):
    """An engine whose SGLang process also answers without it."""

    host_module: ClassVar[str] = "sglang_raw_host"

    async def raw(self, jobs: list[Job], concurrency: int) -> Done:
        """See ``sglang_raw_host``."""
        return Done(*await self._running().process.call("raw", jobs, concurrency))


class Direct:
    """An actor handle on an engine of this process."""

    pid = os.getpid()

    def __init__(self, engine: SglangEngine) -> None:
        self._engine = engine

    async def call(self, method: str, *args: Any) -> Any:
        """Call the engine."""
        return await getattr(self._engine, method)(*args)

    def kill(self) -> None:
        """Nothing to end."""


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
        model = ModelSpec(name="benchmark", path=Path(args.model))
    arguments |= json.loads(args.arguments)
    config = EngineConfig(seeded=not args.unseeded, sglang=arguments)
    engine = RawEngine(config, BuildContext(run_dir=work))
    await engine.start(model)
    try:
        for load in loads:
            raws, ours = await _side_by_side(engine, model, load, args.repeat)
            share = Spread.of(ours).median / Spread.of(raws).median
            kind = "no" if args.unseeded else "yes"
            row = [today(), args.model, kind, str(load.concurrency), f"{load.rollouts:,}"]
            row += [f"{load.turns} x {load.tokens}", str(Spread.of(raws)), str(Spread.of(ours))]
            print(markdown_row([*row, f"{100 * share:.1f} %"]), flush=True)
    finally:
        await engine.stop()


async def _side_by_side(
    engine: RawEngine, model: ModelSpec, load: Load, repeat: int
) -> tuple[list[float], list[float]]:
    """Tokens a second of SGLang alone and of the whole path, ``repeat`` times after a short one."""
    with tempfile.TemporaryDirectory() as folder:
        actor = _actor(engine, model, load, Path(folder))
        jobs = await _jobs(actor, load)
        raws, ours = [], []
        for each in [replace(load, rollouts=load.concurrency), *[load] * repeat]:
            done = await engine.raw(jobs[: each.rollouts], each.concurrency)
            whole = await _whole(actor, each)
            _require_alike(done, whole)
            raws.append(done.sampled / done.seconds)
            ours.append(whole.sampled / whole.seconds)
            told = f"{each.rollouts:,} rollouts: SGLang alone {short(raws[-1])} tokens/s"
            print(f"{told}, the whole path {short(ours[-1])}", flush=True)
        await actor.store.close()
    return raws[1:], ours[1:]


def _require_alike(raw: Done, whole: Done) -> None:
    """Random weights say the model's end token now and then: a few tokens may be missing."""
    for one, other in ((raw.sampled, whole.sampled), (raw.context, whole.context)):
        if abs(one - other) > 0.02 * one:
            raise ValueError(f"not the same work: SGLang alone {raw}, the whole path {whole}")


def _sum(number: int) -> dict[str, str]:
    left, right = 100 + number % 900, 100 + number // 900
    return {"question": f"{left} + {right} =", "answer": str(left + right)}


def _loaded(model: ModelSpec, load: Load, work: Path) -> tuple[LoadedConfig, PluginManager]:
    run: dict[str, Any] = {
        **RUN,
        "env": {"use": "sums-env/sums", "turns": load.turns},
        "model": {"name": str(model.path), "dtype": model.dtype, "device": model.device},
        "dataset": {"use": "core/tasks", "path": str(work / "tasks.jsonl")},
        "rollout": {
            "max_inflight": load.concurrency,
            "max_turns": load.turns,
            "sampling": {"max_tokens": load.tokens * 2},
        },
    }
    (work / "tasks.jsonl").write_text(json.dumps(_sum(0)))
    path = work / "rollout.yaml"
    path.write_text(json.dumps(run))  # JSON is YAML
    manager = PluginManager.discover(local=[ENV])
    return load_run(RunRequest(recipe=str(path)), manager), manager


def _actor(engine: SglangEngine, model: ModelSpec, load: Load, work: Path) -> RolloutActor:
    loaded, manager = _loaded(model, load, work)
    boot = ActorBoot(
        role="rollout",
        rank=0,
        manifest=manager.manifest(),
        config=loaded.config,
        run_dir=work,
        model=model,
    )
    return RolloutActor(boot, None, {"engine": [Direct(engine)]})


async def _jobs(actor: RolloutActor, load: Load) -> list[Job]:
    """What the whole path will send, without the sampled tokens."""
    answer = GenerateResult(
        ids=np.full(1, 10, np.int32),
        logprobs=np.zeros(1, np.float32),
        versions=np.zeros(1, np.int32),
        finish_reason="length",
    )
    jobs = []
    for number, tokens in enumerate(load.lengths()):
        env = Sums(SumsConfig(turns=load.turns), BuildContext(run_dir=actor.boot.run_dir))
        conversation = Conversation(actor.services["tokenizer"])
        observation = await env.reset(_task(number))
        while observation is not None:
            conversation.observe(observation)
            action = conversation.act(answer, SamplingParams(), 0)
            observation = (await env.step(action)).observation
        nodes = [node.ids.tolist() for node in conversation.trace if node.kind != "sampled"]
        jobs.append(Job(nodes[0], nodes[1:], tokens))
    return jobs


def _task(number: int) -> Task:
    return Task(id=str(number), data=_sum(number))


async def _whole(actor: RolloutActor, load: Load) -> Done:
    """As in a run, with what was there before left out of garbage collection."""
    sampling = SamplingParams()
    requests = [
        RolloutRequest(
            stream="train",
            task=_task(number),
            group=number,
            member=0,
            sampling=replace(sampling, max_tokens=tokens),
        )
        for number, tokens in enumerate(load.lengths())
    ]
    with settled():
        start = time.perf_counter()
        summaries = await asyncio.gather(*(actor.play(request) for request in requests))
        seconds = time.perf_counter() - start
    failed = next((each.error for each in summaries if not each.outcome.trainable), "")
    if failed:
        raise ValueError(f"a rollout failed: {failed}")
    handles = [handle for each in summaries for handle in (each.trace, each.record) if handle]
    await actor.store.release(handles)
    sampled = sum(each.sampled_tokens for each in summaries)
    return Done(sampled, sum(each.prompt_tokens for each in summaries), seconds)


if __name__ == "__main__":
    main()
