"""How long new weights take from a trainer's GPUs to an engine on other GPUs over process groups:
copied into flat buckets, sent, checked, loaded, compared value by value, version and checksum
echoed. Beside it, in the same run, a plain broadcast of buffers of the same sizes to one process.

It does not train. With ``--device cpu`` it goes over gloo to the local engine: that shows that it
works, not how fast.

Run, with GPU 0 the trainer's and GPU 1 SGLang's:
    python benchmarks/nccl_sync.py --model qwen3-4b
With four, two sending and two serving:
    python benchmarks/nccl_sync.py --model qwen3-4b --senders 2 --tp 2
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from axisrl.ops.flat_buckets import buffer_size, layout
from axisrl.ops.weights_sent import Weights, WeightSender
from axisrl.protocols import RolloutEngine
from axisrl.runtime.ranks import free_address
from axisrl.types import BuildContext, ModelSpec, Ranks
from axisrl_local.config import EngineConfig
from axisrl_local.engine import LocalEngine
from report import Spread, markdown_row, short, today, versions
from sglang_parts import PORTABLE, SHAPES, random_weights, serving, shaped_folder
from shapes import folder_of

_TIMEOUT_S = 120.0
_spawn = multiprocessing.get_context("spawn")


@dataclass(slots=True)
class Measured:
    """Seconds of each repetition."""

    gigabytes: float
    offers: list[float] = field(default_factory=list)
    """Copying the weights into buckets, and their checksum."""
    takes: list[float] = field(default_factory=list)
    """From the engine's call to its echo."""
    plain: list[float] = field(default_factory=list)
    """A broadcast of buffers of the same sizes."""

    def cells(self) -> list[str]:
        """Without the first repetition, which makes groups and finds out where tensors land."""
        pairs = zip(self.offers[1:], self.takes[1:], strict=True)
        whole = Spread.of([offer + take for offer, take in pairs])
        plain = Spread.of(self.plain[1:])
        return [
            f"{self.gigabytes:.3g}",
            short(Spread.of(self.offers[1:]).median),
            short(Spread.of(self.takes[1:]).median),
            str(whole),
            short(self.gigabytes / whole.median),
            str(plain),
            short(self.gigabytes / plain.median),
        ]


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=(*SHAPES, "tiny"), default="qwen3-4b")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--senders", type=int, default=1, help="the first so many GPUs send")
    parser.add_argument("--tp", type=int, default=1, help="as many GPUs after them serve")
    parser.add_argument("--bucket-mib", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=6)
    parser.add_argument("--no-verify", action="store_true")
    return parser.parse_args(argv)


def main() -> None:
    """Print one row."""
    args = parse()
    for name in ("NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE"):
        # NCCL reads them once a process, here for the plain broadcast; SGLang turns them off.
        os.environ.setdefault(name, "0")
    with tempfile.TemporaryDirectory() as work:
        measured = asyncio.run(measure(args, Path(work)))
    name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    asked = [today(), name, args.model, str(args.senders), str(args.tp), str(args.bucket_mib)]
    print(markdown_row([*asked, *measured.cells()]))
    print(
        "each:", [f"{a:.3f}+{b:.3f}" for a, b in zip(measured.offers, measured.takes, strict=True)]
    )
    print(versions(("torch", "sglang", "transformers")))


async def measure(args: argparse.Namespace, work: Path) -> Measured:
    """Everything, one after the other."""
    model = model_of(args, work)
    weights = random_weights(model)
    found = Measured(sum(weight.nbytes for weight in weights.values()) / 1e9)
    sizes = [buffer_size(entries) for entries in layout(weights, args.bucket_mib * 2**20)]
    found.plain = await asyncio.to_thread(plain_broadcast, args, sizes)
    ranks = senders(args, weights)
    try:
        async with engine_of(args, model, work) as engine:
            for version in range(1, args.repeat + 1):
                start = time.perf_counter()
                update = await asyncio.to_thread(ranks[0].publish, version, weights)
                offered = time.perf_counter()
                ack = await engine.update_weights(update)
                found.takes.append(time.perf_counter() - offered)
                found.offers.append(offered - start)
                if (ack.version, ack.checksum) != (version, update.checksum):
                    raise ValueError(f"echoed {ack}")
    finally:
        for rank in reversed(ranks):
            rank.close()
    return found


def model_of(args: argparse.Namespace, work: Path) -> ModelSpec:
    """What is sent."""
    if args.model == "tiny":
        return ModelSpec(name="tiny", path=folder_of("tiny", work / "cache", work), device="cpu")
    return shaped_folder(args.model, work)


def senders(args: argparse.Namespace, weights: Weights) -> list[WeightSender]:
    """As ranks of one trainer, each with the weights on its own device."""

    def on(rank: int) -> Weights:
        if not rank or args.device == "cpu":
            return weights
        return {name: weight.to(f"cuda:{rank}") for name, weight in weights.items()}

    made = [
        WeightSender(
            Ranks(rank=rank, size=args.senders, rendezvous=""),
            partial(dict, on(rank)),
            host="127.0.0.1",
            bucket_bytes=args.bucket_mib * 2**20,
            timeout_s=_TIMEOUT_S,
        )
        for rank in range(args.senders)
    ]
    for rank in made:
        rank.join(made[0].address)
    return made


@asynccontextmanager
async def engine_of(
    args: argparse.Namespace, model: ModelSpec, work: Path
) -> AsyncIterator[RolloutEngine]:
    """SGLang on the GPUs after the senders', or the local engine on a CPU."""
    if args.device == "cpu":
        engine = LocalEngine(EngineConfig(max_batch=2), BuildContext(run_dir=work))
        await engine.start(model)
        try:
            yield engine
        finally:
            await engine.stop()
        return
    arguments: dict[str, Any] = {
        **PORTABLE,
        "load_format": "dummy",
        "disable_cuda_graph": True,
        "mem_fraction_static": 0.4,
        "base_gpu_id": args.senders,
        "tp_size": args.tp,
    }
    options = {"sglang": arguments, "verify_weights": not args.no_verify}
    async with serving(model, work, options) as served:
        yield served


def plain_broadcast(args: argparse.Namespace, sizes: Sequence[int]) -> list[float]:
    """Seconds for all buffers, from this process to another that does nothing with them."""
    address = free_address()
    target = f"cuda:{args.senders}" if args.device == "cuda" else "cpu"
    other = _spawn.Process(target=take_part, args=(1, address, sizes, target, args.repeat))
    other.start()
    source = "cuda:0" if args.device == "cuda" else "cpu"
    seconds = take_part(0, address, sizes, source, args.repeat)
    other.join()
    return seconds


def take_part(
    rank: int, address: str, sizes: Sequence[int], device: str, repeat: int
) -> list[float]:
    """One of the two processes of the plain broadcast."""
    cuda = device != "cpu"
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if cuda else "gloo", init_method=f"tcp://{address}", rank=rank, world_size=2
    )
    buffers = [torch.zeros(size, dtype=torch.uint8, device=device) for size in sizes]
    seconds = []
    for _ in range(repeat):
        dist.barrier()
        start = time.perf_counter()
        for work in [dist.broadcast(buffer, 0, async_op=True) for buffer in buffers]:
            work.wait()
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    dist.destroy_process_group()
    return seconds


if __name__ == "__main__":
    main()
