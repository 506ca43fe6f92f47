"""What the loss part of training costs beside a plain cross-entropy, the sides taking turns.

    python benchmarks/loss_cost.py                                  # float32, CPU, some minutes
    python benchmarks/loss_cost.py --device cuda --dtype bfloat16
    python benchmarks/loss_cost.py --tokens 256 --vocabulary 4096 8192     # a quick try

From hidden states to the gradients of hidden states and output matrix, forward and backward:

- plain: all logits at once, in float32, ``torch.nn.functional.cross_entropy``, autograd.
- grpo: ``local/trainer``'s head, with its default options unless told otherwise, ``grpo/grpo``.
- entropy, kl, icepop: the same with an entropy bonus, with a k3 penalty against given reference
  log-probabilities, with the correction ``icepop/icepop``; at the last shape alone.

The batch is on policy with advantages of 1, so the gradients of plain and grpo are the same; how
far they are apart is printed. Each side is a process of its own for each shape. Times are the
least of ``--repeat`` passes after a warm-up, in turns: plain grpo ... plain grpo ... Memory is the
most that was needed at once beyond the inputs, both gradients included: the growth of the
process's peak resident memory on a CPU, what PyTorch allocates on CUDA.

Not measured: the model's body, the passes that give old and reference log-probabilities.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from axisrl.ops.head_plan import head_plan
from axisrl_local.trainer_config import TrainerConfig
from loss_part import PLAIN, VARIANTS, LossPart, Shape, cross_entropy
from report import cpu_name, load_average, short, table, today, versions
from side import Side

HERE = Path(__file__).parent
TOKENS = {"cpu": (1024, 4096), "cuda": (4096, 16384)}
VOCABULARY = (49152, 151936)
HIDDEN = {"cpu": 576, "cuda": 2048}
HEADER = ("tokens", "vocabulary", "loss", "s", "plain, s", "ratio", "MiB", "plain, MiB")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one side at one shape."""

    seconds: float
    """Of the fastest pass."""
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One loss at one shape, and plain cross-entropy beside it."""

    shape: Shape
    loss: str
    ours: Cost
    plain: Cost

    @property
    def ratio(self) -> float:
        """How many times plain's time it takes."""
        return self.ours.seconds / self.plain.seconds

    def cells(self) -> list[str]:
        """Its line of the table."""
        return [
            f"{self.shape.tokens:,}",
            f"{self.shape.vocabulary:,}",
            self.loss,
            short(self.ours.seconds),
            short(self.plain.seconds),
            f"{self.ratio:.2f}",
            short(self.ours.peak_bytes / _MIB),
            short(self.plain.peak_bytes / _MIB),
        ]

    def facts(self) -> dict[str, object]:
        """The same as data."""
        return asdict(self) | {"ratio": self.ratio}


def shapes(args: argparse.Namespace) -> list[Shape]:
    """Every length with every vocabulary."""
    return [
        Shape(tokens=tokens, vocabulary=vocabulary, hidden=args.hidden)
        for vocabulary, tokens in product(args.vocabulary, args.tokens)
    ]


def measure(
    args: argparse.Namespace, shape: Shape, losses: Sequence[str], folder: Path
) -> list[Result]:
    """The losses at one shape, in turns with plain cross-entropy."""
    names = [PLAIN, *losses]
    with ExitStack() as stack:
        sides = []
        for name in names:
            job = _job(args, shape, name, folder)
            command = [sys.executable, str(HERE / "loss_side.py"), str(job)]
            side = Side(name, command, args.threads, folder / f"{name}.log")
            sides.append(stack.enter_context(side))
            side.wait_until_ready()
        for _ in range(args.repeat + 1):
            for side in sides:
                side.update()
        for side in sides:
            side.finish()
    costs = {name: _cost(folder / f"{name}.json") for name in names}
    return [Result(shape=shape, loss=name, ours=costs[name], plain=costs[PLAIN]) for name in losses]


def disagreement(device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    """Largest difference between grpo and plain on 96 tokens: of the loss as cross-entropy, and of
    the gradients, both relative to plain's largest value."""
    inputs = Shape(tokens=96, vocabulary=512, hidden=64).inputs(device, dtype)
    part = LossPart("grpo", inputs, TrainerConfig())
    part(inputs)
    ours = [_taken(tensor) for tensor in inputs[:2]]
    loss = float(cross_entropy(inputs))
    theirs = [_taken(tensor) for tensor in inputs[:2]]
    apart = max(
        float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True)
    )
    return abs(part.cross_entropy - loss) / loss, apart


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--tokens", type=int, nargs="+", help="trained tokens of a batch")
    parser.add_argument("--vocabulary", type=int, nargs="+", help="rows of the output matrix")
    parser.add_argument("--hidden", type=int, help="size of a hidden state")
    parser.add_argument("--loss", nargs="+", default=VARIANTS, choices=VARIANTS)
    parser.add_argument("--chunk-tokens", type=int, help="default: the trainer's on the device")
    parser.add_argument("--kept-logits-mib", type=int, help="default: the trainer's on the device")
    parser.add_argument("--repeat", type=int, default=3, help="measured passes of each side")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each side")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    args = parser.parse_args(arguments)
    args.tokens = args.tokens or TOKENS[args.device]
    args.vocabulary = args.vocabulary or VOCABULARY
    args.hidden = args.hidden or HIDDEN[args.device]
    return args


def main() -> None:
    """Measure and print."""
    args = parse()
    device = torch.device(args.device)
    hardware = _hardware(device, args.threads)
    print(f"{today()}, {hardware}, load {load_average()}")
    print(versions())
    plan = head_plan(TrainerConfig(**_options(args)), device, entropy=False)
    loss, gradient = disagreement(device, getattr(torch, args.dtype))
    print(
        f"{args.dtype}, hidden size {args.hidden}, chunk_tokens {plan.chunk_tokens}, "
        f"kept_logits_mib {plan.kept_bytes // _MIB}, least of {args.repeat} passes; grpo and plain "
        f"differ by {short(loss)} in loss and {short(gradient)} in gradients (relative)"
    )
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        grid = shapes(args)
        for shape in grid:
            losses = args.loss if shape is grid[-1] else args.loss[:1]
            results += measure(args, shape, losses, Path(name))
            print(f"{shape.tokens} x {shape.vocabulary}: done", file=sys.stderr)
    print()
    print(table(HEADER, [result.cells() for result in results]))
    print(f"\nload at the end {load_average()}; the table is the one of docs/benchmarks.md")
    if args.json:
        args.json.write_text(json.dumps([result.facts() for result in results], indent=2))


def _job(args: argparse.Namespace, shape: Shape, side: str, folder: Path) -> Path:
    job: Mapping[str, object] = {
        "side": side,
        "shape": asdict(shape),
        "device": args.device,
        "dtype": args.dtype,
        "trainer": _options(args),
        "threads": args.threads,
        "turns": args.repeat + 1,
        "output": str(folder / f"{side}.json"),
    }
    path = folder / f"{side}.job.json"
    path.write_text(json.dumps(job))
    return path


def _options(args: argparse.Namespace) -> dict[str, Any]:
    return {"chunk_tokens": args.chunk_tokens, "kept_logits_mib": args.kept_logits_mib}


def _cost(path: Path) -> Cost:
    found = json.loads(path.read_text())
    return Cost(seconds=min(found["seconds"]), peak_bytes=found["peak_bytes"])


def _taken(tensor: torch.Tensor) -> torch.Tensor:
    """The gradient, which the tensor then no longer has."""
    if tensor.grad is None:
        raise ValueError("a side left no gradient")
    gradient, tensor.grad = tensor.grad.float(), None
    return gradient


def _hardware(device: torch.device, threads: int) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{cpu_name()}, {threads} threads"


if __name__ == "__main__":
    main()
