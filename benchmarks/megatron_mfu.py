"""How much of a GPU training uses: one update of packed rows through each trainer, in published
shapes with random weights.

    python benchmarks/megatron_mfu.py --shape qwen2.5-1.5b --rows 8 --length 2048
    python benchmarks/megatron_mfu.py --megatron '{"recompute_granularity": "full"}'

Counted are the multiplications that the tokens need, two operations each: 6 N a token for forward
and backward, the output matrix where a token is trained, and causal attention inside each row,
6 x length^2 x heads x head size a layer. What is computed a second time counts once. The update
includes clipping and AdamW. The peak is given (``--peak``) or measured by square matrix products.

It trains on tokens that mean nothing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file

from axisrl.runtime.batch import with_weights
from axisrl.testing.sequences import PullLoss, packed
from axisrl.types import BuildContext, ModelSpec, PackedBatch
from axisrl_local.trainer import LocalTrainer
from axisrl_local.trainer_config import TrainerConfig
from axisrl_megatron.config import MegatronConfig
from axisrl_megatron.trainer import MegatronTrainer
from probe import random_samples
from report import Spread, markdown_row, short, today, versions
from sglang_parts import SHAPES, random_weights, shaped_folder

TRAINERS = ("megatron", "local")
STEPS = 100


class Shape(NamedTuple):
    """What the operations are counted from."""

    layers: int
    body: int
    """Parameters of the layers' matrices."""
    head: int
    attention: int
    """Heads times head size."""


def main() -> None:
    """Print a row for each trainer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-1.5b")
    parser.add_argument("--trainers", nargs="+", choices=TRAINERS, default=["megatron"])
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--peak", type=float, help="TFLOP/s; measured unless given")
    parser.add_argument("--attention", default=MegatronConfig().attention, help="module:class")
    parser.add_argument("--megatron", type=json.loads, default={}, help="trainer.megatron, JSON")
    args = parser.parse_args()
    peak = args.peak * 1e12 if args.peak else measured_peak()
    loss = PullLoss()
    samples = random_samples(args.rows, 1, args.length)
    batch = packed(with_weights(samples, loss.aggregation, loss.sequence_norm))
    with tempfile.TemporaryDirectory() as work:
        model = shaped_folder(args.shape, Path(work))
        weights = random_weights(model)
        save_file(weights, model.path / "model.safetensors")
        shape = shape_of(SHAPES[args.shape], weights)
        del weights
        for name in args.trainers:
            seconds, memory = _measure(name, args, model, batch, Path(work))
            needed = operations(shape, batch)
            rate = needed / seconds.median
            how = (args.attention.rpartition(":")[2], json.dumps(args.megatron))
            told = (name, args.shape, f"{args.rows} x {args.length:,}", *how)
            numbers = (
                str(seconds),
                short(batch.tokens / seconds.median),
                short(rate / 1e12),
                f"{rate / peak:.1%}",
                short(memory / 2**30),
            )
            print(markdown_row([today(), torch.cuda.get_device_name(), *told, *numbers]))
    print(f"of {short(peak / 1e12)} TFLOP/s;", versions(("torch", "megatron-core")))


def shape_of(config: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> Shape:
    """Counted from the weights' shapes."""
    matrices = {name: value.numel() for name, value in weights.items() if value.ndim == 2}
    head = matrices.pop("model.embed_tokens.weight")
    heads = config["num_attention_heads"]
    size = config.get("head_dim", config["hidden_size"] // heads)
    return Shape(config["num_hidden_layers"], sum(matrices.values()), head, heads * size)


def operations(shape: Shape, batch: PackedBatch) -> float:
    """That the tokens of an update need."""
    trained = int(batch.columns["loss_mask"].sum())
    lengths = batch.row_starts[1:] - batch.row_starts[:-1]
    squares = float((lengths.astype("float64") ** 2).sum())
    products = 6.0 * (batch.tokens * shape.body + trained * shape.head)
    return products + 6.0 * squares * shape.attention * shape.layers


def measured_peak(edge: int = 8192, repeat: int = 20) -> float:
    """Operations a second of a square matrix product in bfloat16."""
    a, b = (torch.randn(edge, edge, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    torch.cuda.synchronize()
    for round_ in range(repeat + 1):
        if round_ == 1:
            torch.cuda.synchronize()
            begun = time.perf_counter()
        a @ b
    torch.cuda.synchronize()
    return 2.0 * edge**3 * repeat / (time.perf_counter() - begun)


def _measure(
    name: str, args: argparse.Namespace, model: ModelSpec, batch: PackedBatch, work: Path
) -> tuple[Spread, int]:
    context = BuildContext(run_dir=work)
    trainer: Any = (
        MegatronTrainer(MegatronConfig(megatron=args.megatron, attention=args.attention), context)
        if name == "megatron"
        else LocalTrainer(TrainerConfig(), context)
    )
    trainer.start(model, STEPS)
    seconds = []
    try:
        for round_ in range(args.repeat + 2):
            if round_ == 2:
                torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
            begun = time.perf_counter()
            trainer.step([batch], PullLoss())
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begun)
    finally:
        trainer.stop()
    return Spread.of(seconds[2:]), torch.cuda.max_memory_allocated()


if __name__ == "__main__":
    main()
