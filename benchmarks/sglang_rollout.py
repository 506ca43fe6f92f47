"""Tokens a second of the whole rollout path (environment, conversation, engine, verifier, reward,
trace and record into the store) beside SGLang alone, on the same prompts, in the same SGLang
process, taking turns.

Run: python benchmarks/sglang_rollout.py --model qwen2.5-1.5b --concurrency 128 512
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from axisrl.runtime.actors import ActorBoot
from axisrl.runtime.rollout import RolloutActor, RolloutRequest
from axisrl.types import BuildContext, ModelSpec, SamplingParams, Task
from axisrl_sglang.config import EngineConfig
from axisrl_sglang.engine import SglangEngine
from report import Spread, markdown_row, short, today, versions
from setting import load, prompt_tasks
from sglang_parts import PORTABLE, SHAPES, shaped_folder

RUN = {
    "mode": "rollout",
    "env": {"use": "gsm8k/math", "system": "Solve the sum.", "template": "{question}"},
    "verifiers": {"correct": {"use": "gsm8k/math"}},
    "rewards": {"main": {"use": "core/sum"}},
    "engine": {"use": "sglang/engine"},
    "train": {"updates": 1},
}


class RawEngine(SglangEngine):
    """An engine whose SGLang process also answers without it."""

    host_module: ClassVar[str] = "sglang_raw_host"

    async def raw(
        self, prompts: Sequence[list[int]], sampling: dict[str, Any], concurrency: int
    ) -> tuple[int, float]:
        """See ``sglang_raw_host``."""
        answer: tuple[int, float] = await self._running().process.call(
            "raw", prompts, sampling, concurrency
        )
        return answer


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
    """Print a row for each concurrency."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen2.5-1.5b", help="a shape, or a model's folder")
    parser.add_argument("--concurrency", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--rounds", type=int, default=4, help="rollouts for each that runs at once")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--arguments", default="{}", help="more server arguments, as JSON")
    args = parser.parse_args()
    # The SGLang process imports the module beside this one.
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with tempfile.TemporaryDirectory() as work:
        asyncio.run(_measure(args, Path(work)))
    print(versions(("torch", "sglang", "transformers")))


async def _measure(args: argparse.Namespace, work: Path) -> None:
    arguments = {**PORTABLE, "cuda_graph_max_bs_decode": max(args.concurrency)}
    if args.model in SHAPES:
        model = shaped_folder(args.model, work)
        arguments["load_format"] = "dummy"
    else:
        model = ModelSpec(name="benchmark", path=Path(args.model))
    arguments |= json.loads(args.arguments)
    count = args.rounds * max(args.concurrency)
    loaded, manager = load(str(_recipe(model, args.tokens, count, work)), [])
    prompts = await asyncio.to_thread(prompt_tasks, loaded, manager, count)
    engine = RawEngine(EngineConfig(sglang=arguments), BuildContext(run_dir=work))
    await engine.start(model)
    try:
        boot = ActorBoot(
            role="rollout",
            rank=0,
            manifest=manager.manifest(),
            config=loaded.config,
            run_dir=work,
            model=model,
        )
        tasks = [Task(id=str(n), data=_sum(n)) for n in range(count)]
        for concurrency in args.concurrency:
            used = args.rounds * concurrency
            actor = _actor(boot, engine, concurrency)
            ids = [actor.services["tokenizer"].encode(each.prompt) for each in prompts[:used]]
            raws, ours = [], []
            for turn in range(args.repeat + 1):
                raw = await _raw(engine, ids, args.tokens, concurrency)
                whole = await _whole(actor, tasks[:used], args.tokens)
                if turn:  # the first warms up
                    raws.append(raw)
                    ours.append(whole)
            share = Spread.of(ours).median / Spread.of(raws).median
            print("each:", [short(v) for v in raws], [short(v) for v in ours])
            row = [today(), args.model, str(concurrency), f"{used:,}", str(args.tokens)]
            row += [str(Spread.of(raws)), str(Spread.of(ours)), f"{100 * share:.1f} %"]
            print(markdown_row(row), flush=True)
    finally:
        await engine.stop()


def _sum(number: int) -> dict[str, str]:
    left, right = 1 + number % 99, 1 + number // 99
    return {"question": f"{left} + {right} =", "answer": str(left + right)}


def _recipe(model: ModelSpec, tokens: int, count: int, work: Path) -> Path:
    (work / "tasks.jsonl").write_text("\n".join(json.dumps(_sum(n)) for n in range(count)))
    run: dict[str, Any] = {
        **RUN,
        "model": {"name": str(model.path), "dtype": model.dtype, "device": model.device},
        "dataset": {"use": "core/tasks", "path": str(work / "tasks.jsonl")},
        "rollout": {"sampling": {"max_tokens": tokens}},
    }
    path = work / "rollout.yaml"
    path.write_text(json.dumps(run))  # JSON is YAML
    return path


def _actor(boot: ActorBoot, engine: SglangEngine, concurrency: int) -> RolloutActor:
    rollout = dataclasses.replace(boot.config.rollout, max_inflight=concurrency)
    config = dataclasses.replace(boot.config, rollout=rollout)
    return RolloutActor(
        dataclasses.replace(boot, config=config), None, {"engine": [Direct(engine)]}
    )


async def _raw(engine: RawEngine, ids: Sequence[list[int]], tokens: int, concurrency: int) -> float:
    sampling = {"temperature": 1.0, "max_new_tokens": tokens, "stop_token_ids": []}
    sampled, seconds = await engine.raw(ids, sampling, concurrency)
    return sampled / seconds


async def _whole(actor: RolloutActor, tasks: Sequence[Task], tokens: int) -> float:
    sampling = SamplingParams(max_tokens=tokens)
    requests = [
        RolloutRequest(stream="train", task=task, group=number, member=0, sampling=sampling)
        for number, task in enumerate(tasks)
    ]
    start = time.perf_counter()
    summaries = await asyncio.gather(*(actor.play(request) for request in requests))
    seconds = time.perf_counter() - start
    failed = next((each.error for each in summaries if not each.outcome.trainable), "")
    if failed:
        raise ValueError(f"a rollout failed: {failed}")
    handles = [handle for each in summaries for handle in (each.trace, each.record) if handle]
    await actor.store.release(handles)
    return sum(each.sampled_tokens for each in summaries) / seconds


if __name__ == "__main__":
    main()
