"""What a colocated step's hand-overs of memory take: bytes and seconds, turn by turn.

    python benchmarks/handover.py                                # SmolLM2-135M, bfloat16, CUDA
    python benchmarks/handover.py --model random-1.5b            # that size, made from a seed
    python benchmarks/handover.py --model tiny --device cpu      # a quick try: nothing moves there

One process holds what a PPO run with a KL penalty holds: ``local/engine``, and ``local/trainer`` as
policy, value model and reference, all of the same model. Everybody loads, plays or makes a step
once, and then they take turns as :mod:`axisrl.runtime.memory` has them do. A line is one hand-over:

- seconds, median of ``--repeat`` rounds (least to most), after one that page-locks host memory;
- GiB that were freed or taken on the device by it, and that is how many a second;
- GiB held on the device afterwards (``torch.cuda.memory_allocated``).

At the end stands what the largest turn holds beside what all would hold at once. Activations are
left out of both: they exist during a turn's work alone.

Not measured: more than one process a GPU, where each has a CUDA context besides (some hundred MB),
and Ray's calls.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from axisrl.protocols import EnginePart, Loss, TrainerPart
from axisrl.testing.sequences import PullLoss, ValueLoss, packed, random_samples
from axisrl.types import BuildContext, GenerateRequest, ModelSpec, PackedBatch, SamplingParams
from axisrl_local.config import EngineConfig
from axisrl_local.engine import LocalEngine
from axisrl_local.trainer import LocalTrainer
from axisrl_local.trainer_config import TrainerConfig
from report import Spread, cpu_name, load_average, markdown_row, short, table, today, versions
from shapes import folder_of

GIB = float(1 << 30)
HEADER = ("hand-over", "s: median (least to most)", "GiB moved", "GiB/s", "GiB held then")
ENGINE: tuple[EnginePart, ...] = ("weights", "kv_cache")
TRAINER: tuple[TrainerPart, ...] = ("weights", "optimizer")


@dataclass(slots=True, kw_only=True)
class Line:
    """One hand-over, made several times."""

    name: str
    seconds: list[float]
    moved: float = 0.0
    """Bytes, by the last round."""
    held: float = 0.0
    """Bytes on the device afterwards."""

    def cells(self) -> list[str]:
        """Its line of the table."""
        spread = Spread.of(self.seconds)
        rate = short(self.moved / GIB / spread.median) if self.moved else "-"
        return [self.name, str(spread), short(self.moved / GIB), rate, short(self.held / GIB)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Everybody who shares the device; the engine holds all it has, the models nothing."""

    engine: LocalEngine
    policy: LocalTrainer
    value: LocalTrainer
    reference: LocalTrainer
    at_once: float
    """Bytes held if nothing ever moved."""

    def round(self, version: int) -> Iterator[tuple[str, Callable[[], Awaitable[object]]]]:
        """The hand-overs of one step, in order, and the weight sync between them."""
        engine, policy, value, reference = self.engine, self.policy, self.value, self.reference

        async def sync() -> None:
            await engine.update_weights(policy.weight_update(version))

        yield "engine goes", lambda: engine.offload(ENGINE)
        yield "value model comes to score", _plainly(value.reload, ["weights"])
        yield "value model goes", _plainly(value.offload, TRAINER)
        yield "reference comes", _plainly(reference.reload, ["weights"])
        yield "reference goes", _plainly(reference.offload, ["weights"])
        yield "value model comes to step", _plainly(value.reload, TRAINER)
        yield "value model goes again", _plainly(value.offload, TRAINER)
        yield "policy comes", _plainly(policy.reload, TRAINER)
        yield "policy's optimizer goes", _plainly(policy.offload, ["optimizer"])
        yield "engine's weights come", lambda: engine.reload(["weights"])
        yield "(weight sync, through a file)", sync
        yield "policy goes", _plainly(policy.offload, ["weights"])
        yield "engine's cache comes", lambda: engine.reload(["kv_cache"])

    async def stop(self) -> None:
        """Free everything."""
        for trainer in (self.policy, self.value, self.reference):
            trainer.stop()
        await self.engine.stop()


def _plainly(
    move: Callable[[Sequence[TrainerPart]], None], parts: Sequence[TrainerPart]
) -> Callable[[], Awaitable[object]]:
    """A trainer's call, to be awaited like an engine's."""

    async def moved() -> None:
        move(parts)

    return moved


async def started(spec: ModelSpec, args: argparse.Namespace, work: Path) -> Pair:
    """Load one after another, as a colocated run does, and have each work once."""
    context, at_once = BuildContext(run_dir=work), 0.0
    trainers = []
    for head, steps in (("lm", 100), ("value", 100), ("lm", None)):
        before = held(spec)
        model = dataclasses.replace(spec, head=head)
        trainer = LocalTrainer(TrainerConfig(), context)
        trainer.start(model, steps)
        if steps is not None:
            trainer.step([batch(model)], loss_of(head))
        at_once += held(spec) - before
        trainer.offload(TRAINER)
        trainers.append(trainer)
    before = held(spec)
    config = EngineConfig(
        max_batch=args.rows, max_context=args.context, step_tokens=max(64, args.rows)
    )
    engine = LocalEngine(config, context)
    await engine.start(spec)
    await asyncio.gather(*(engine.generate(request(row, args.context)) for row in range(args.rows)))
    at_once += held(spec) - before
    policy, value, reference = trainers
    return Pair(engine=engine, policy=policy, value=value, reference=reference, at_once=at_once)


async def measured(pair: Pair, spec: ModelSpec, repeat: int) -> list[Line]:
    """``repeat`` rounds, and one before them that does not count."""
    lines: dict[str, Line] = {}
    for version in range(1, repeat + 2):
        for name, move in pair.round(version):
            before, begun = held(spec), time.perf_counter()
            await move()
            finish(spec)
            seconds, after = time.perf_counter() - begun, held(spec)
            line = lines.setdefault(name, Line(name=name, seconds=[]))
            line.moved, line.held = abs(after - before), after
            if version > 1:
                line.seconds.append(seconds)
    return list(lines.values())


def finish(spec: ModelSpec) -> None:
    """Wait until the device has nothing left to do."""
    if spec.device == "cuda":
        torch.cuda.synchronize()


def held(spec: ModelSpec) -> float:
    """Bytes of tensors on the device; 0 on a CPU."""
    if spec.device != "cuda":
        return 0.0
    finish(spec)
    gc.collect()
    return float(torch.cuda.memory_allocated())


def batch(model: ModelSpec) -> PackedBatch:
    """A few rows with returns."""
    made = packed(random_samples(model, 4))
    returns = np.ones(made.tokens, np.float32)
    return dataclasses.replace(made, columns={**made.columns, "returns": returns})


def loss_of(head: str) -> Loss:
    """One that moves the model."""
    return ValueLoss() if head == "value" else PullLoss()


def request(row: int, context: int) -> GenerateRequest:
    """A prompt as long as the context, so that the cache grows to its full size."""
    ids = np.random.default_rng(row).integers(4, 90, context - 1).astype(np.int32)
    sampling = SamplingParams(max_tokens=1)
    return GenerateRequest(id=str(row), prompt_ids=ids, sampling=sampling, seed=row)


def summary(lines: Iterable[Line], at_once: float) -> str:
    """The peak of turns beside that of holding everything, and the seconds of one step."""
    largest = max(line.held for line in lines)
    seconds = sum(Spread.of(line.seconds).median for line in lines if line.name[0] != "(")
    return (
        f"largest turn {short(largest / GIB)} GiB, all at once {short(at_once / GIB)} GiB; "
        f"hand-overs of a step {short(seconds)} s"
    )


def row(lines: Sequence[Line], at_once: float, what: Sequence[str]) -> str:
    """One line for ``docs/benchmarks.md``."""
    moves = [line for line in lines if line.name[0] != "("]
    seconds = sum(Spread.of(line.seconds).median for line in moves)
    moved = sum(line.moved for line in moves)
    largest = max(line.held for line in lines)
    cells = (short(moved / GIB), short(seconds), short(largest / GIB), short(at_once / GIB))
    return markdown_row([today(), *what, *cells])


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model",
        default="smollm2-135m",
        help="smollm2-135m, tiny, random-135m, random-1.5b or a folder",
    )
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16"))
    parser.add_argument("--rows", type=int, default=64, help="slots of the engine's cache")
    parser.add_argument("--context", type=int, default=2048, help="tokens of a slot")
    parser.add_argument("--repeat", type=int, default=5, help="rounds")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/axisrl"))
    return parser.parse_args(arguments)


async def run(args: argparse.Namespace) -> None:
    """Measure and print."""
    gpu = args.device == "cuda"
    hardware = torch.cuda.get_device_name() if gpu else cpu_name()
    what = f"{args.model} {args.dtype}"
    print(f"{today()}, {hardware}, load {load_average()}\n{versions()}")
    print(f"{what}: engine of {args.rows} slots of {args.context} tokens\n")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        folder = folder_of(args.model, args.cache.expanduser(), work)
        spec = ModelSpec(name=args.model, path=folder, dtype=args.dtype, device=args.device)
        pair = await started(spec, args, work)
        try:
            lines = await measured(pair, spec, args.repeat)
        finally:
            await pair.stop()
    print(table(HEADER, [line.cells() for line in lines]))
    print(f"\n{summary(lines, pair.at_once)}\nrow for docs/benchmarks.md:")
    print(row(lines, pair.at_once, [hardware, what]))


if __name__ == "__main__":
    asyncio.run(run(parse()))
