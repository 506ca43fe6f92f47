"""How long new weights take from a trainer's GPU memory to SGLang on the same GPU: copied into flat
buckets, opened, checked, loaded, compared value by value, the cache flushed, version and checksum
echoed.

It does not train. Run: python benchmarks/sglang_sync.py --model qwen3-4b
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import torch

from axisrl.ops.weights_out import WeightPublisher
from report import Spread, markdown_row, short, today, versions
from sglang_parts import PORTABLE, SHAPES, random_weights, serving, shaped_folder


def main() -> None:
    """Print a row for each transport."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=SHAPES, default="qwen3-4b")
    parser.add_argument("--transport", nargs="+", default=["cuda_ipc"])
    parser.add_argument("--bucket-mib", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=6)
    parser.add_argument("--no-verify", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        asyncio.run(_measure(args, Path(work)))
    print(versions(("torch", "sglang", "transformers")))


async def _measure(args: argparse.Namespace, work: Path) -> None:
    model = shaped_folder(args.model, work)
    weights = random_weights(model)
    size = sum(weight.nbytes for weight in weights.values()) / 1e9
    copied = _copy_rate()
    arguments = {**PORTABLE, "load_format": "dummy", "disable_cuda_graph": True}
    options = {
        "sglang": {**arguments, "mem_fraction_static": 0.4},
        "verify_weights": not args.no_verify,
    }
    async with serving(model, work, options) as engine:
        version = 0
        for transport in args.transport:
            publisher = WeightPublisher(work, transport, args.bucket_mib * 2**20)
            offers, takes = [], []
            for _ in range(args.repeat):
                version += 1
                start = time.perf_counter()
                update = publisher.publish(version, weights)
                offered = time.perf_counter()
                ack = await engine.update_weights(update)
                taken = time.perf_counter()
                if (ack.version, ack.checksum) != (version, update.checksum):
                    raise ValueError(f"echoed {ack}")
                offers.append(offered - start)
                takes.append(taken - offered)
            publisher.close()
            whole = [a + b for a, b in zip(offers, takes, strict=True)][1:]
            median = Spread.of(whole).median
            print("each:", [f"{a:.3f}+{b:.3f}" for a, b in zip(offers, takes, strict=True)])
            print(
                markdown_row(
                    [
                        today(),
                        torch.cuda.get_device_name(),
                        args.model,
                        transport,
                        f"{size:.2f}",
                        short(Spread.of(offers[1:]).median),
                        short(Spread.of(takes[1:]).median),
                        str(Spread.of(whole)),
                        f"{size / median:.0f}",
                        f"{100 * size / median / copied:.1f} %",
                    ]
                )
            )


def _copy_rate() -> float:
    """GB copied a second within the GPU's memory."""
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    best = 0.0
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        best = max(best, source.nbytes / 1e9 / (time.perf_counter() - start))
    return best


if __name__ == "__main__":
    main()
