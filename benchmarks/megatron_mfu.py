"""How much of a GPU training uses: one update of packed rows through each trainer, in published
shapes with random weights.

    python benchmarks/megatron_mfu.py --shape qwen2.5-1.5b --rows 8 --length 2048
    python benchmarks/megatron_mfu.py --megatron '{"recompute_granularity": "full"}'
    python benchmarks/megatron_mfu.py --ranks 2 --batches 8 --options '{"pipeline": 2}'

Counted are the multiplications that the tokens need, two operations each: 6 N a token for forward
and backward, the output matrix where a token is trained, and causal attention inside each row,
6 x length^2 x heads x head size a layer. What is computed a second time counts once. The update
includes clipping and AdamW. Of several ranks (Megatron's, a GPU each) all share one update, packed
into ``--batches``; rate and share are one GPU's, memory is that of the rank with most. The peak is
given (``--peak``) or measured by square matrix products.

It trains on tokens that mean nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file

from axisrl.runtime.batch import with_weights
from axisrl.runtime.ranks import free_address
from axisrl.testing.sequences import PullLoss, packed
from axisrl.types import BuildContext, ModelSpec, PackedBatch, Ranks
from axisrl_local.trainer import LocalTrainer
from axisrl_local.trainer_config import TrainerConfig
from axisrl_megatron.config import MegatronConfig
from axisrl_megatron.trainer import MegatronTrainer
from probe import random_samples
from report import Spread, markdown_row, short, today, versions
from sglang_parts import SHAPES, random_weights, shaped_folder

TRAINERS = ("megatron", "local")
STEPS = 100
LIMIT_S = 1200.0


class Shape(NamedTuple):
    """What the operations are counted from."""

    layers: int
    body: int
    """Parameters of the layers' matrices."""
    head: int
    attention: int
    """Heads times head size."""


class Update(NamedTuple):
    """What is measured."""

    args: argparse.Namespace
    model: ModelSpec
    batches: Sequence[PackedBatch]
    work: Path


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
    parser.add_argument("--ranks", type=int, default=1, help="GPUs of Megatron's trainer")
    parser.add_argument("--batches", type=int, default=1, help="into which the rows are packed")
    parser.add_argument(
        "--options", type=json.loads, default={}, help='others of trainer, JSON: {"pipeline": 2}'
    )
    args = parser.parse_args()
    peak = args.peak * 1e12 if args.peak else measured_peak()
    loss = PullLoss()
    samples = random_samples(args.rows, 1, args.length)
    weighted = with_weights(samples, loss.aggregation, loss.sequence_norm)
    batches = [packed(weighted[at :: args.batches]) for at in range(args.batches)]
    tokens = sum(batch.tokens for batch in batches)
    with tempfile.TemporaryDirectory() as work:
        model = shaped_folder(args.shape, Path(work))
        weights = random_weights(model)
        save_file(weights, model.path / "model.safetensors")
        shape = shape_of(SHAPES[args.shape], weights)
        del weights
        update = Update(args, model, batches, Path(work))
        for name in args.trainers:
            seconds, memory = _measured(name, update)
            needed = sum(operations(shape, batch) for batch in batches)
            rate = needed / seconds.median / args.ranks
            how = (args.attention.rpartition(":")[2], json.dumps(args.megatron | args.options))
            apart = f" in {args.batches} on {args.ranks}" if args.ranks * args.batches > 1 else ""
            rows = f"{args.rows} x {args.length:,}{apart}"
            told = (name, args.shape, rows, *how)
            numbers = (
                str(seconds),
                short(tokens / seconds.median),
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


def _measured(name: str, update: Update) -> tuple[Spread, int]:
    """Of one process, or of ranks that are processes of their own."""
    ranks = update.args.ranks
    if ranks == 1:
        return _measure(_trainer(name, update), update)
    torch.cuda.empty_cache()
    spawn = multiprocessing.get_context("spawn")
    answers, where = spawn.Queue(), free_address()
    started = [
        spawn.Process(target=_rank, args=(rank, where, update, answers), daemon=True)
        for rank in range(ranks)
    ]
    for process in started:
        process.start()
    found = [answers.get(timeout=LIMIT_S) for _ in started]
    for process in started:
        process.join(LIMIT_S)
    return found[0][0], max(memory for _, memory in found)


def _rank(rank: int, where: str, update: Update, answers: Any) -> None:
    trainer = _trainer("megatron", update)
    share = trainer.join(Ranks(rank=rank, size=update.args.ranks, rendezvous=where))
    model = dataclasses.replace(update.model, device=f"cuda:{rank}")
    mine = update.batches[share.index :: share.count]
    answers.put(_measure(trainer, update._replace(model=model, batches=mine)))


def _trainer(name: str, update: Update) -> Any:
    args, context = update.args, BuildContext(run_dir=update.work)
    if name == "local":
        return LocalTrainer(TrainerConfig(), context)
    config = MegatronConfig(megatron=args.megatron, attention=args.attention, **args.options)
    return MegatronTrainer(config, context)


def _measure(trainer: Any, update: Update) -> tuple[Spread, int]:
    trainer.start(update.model, STEPS)
    seconds = []
    try:
        for round_ in range(update.args.repeat + 2):
            if round_ == 2:
                torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
            begun = time.perf_counter()
            trainer.step(update.batches, PullLoss())
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begun)
    finally:
        trainer.stop()
    return Spread.of(seconds[2:]), torch.cuda.max_memory_allocated()


if __name__ == "__main__":
    main()
