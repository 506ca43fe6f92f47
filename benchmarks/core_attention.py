"""Core attentions of ``megatron/trainer`` beside each other, as Megatron's layers call them, the
sides taking turns.

    python benchmarks/core_attention.py --device cuda          # 16,384 tokens, bfloat16
    python benchmarks/core_attention.py                        # a small size in float32 on the CPU

Forward, and forward with backward, of one layer's attention over a packed batch:

- RowAttention: the trainer's default; on CUDA in bfloat16 torch's variable-length kernel.
- FlexRowAttention: FlexAttention, compiled, with a block mask of rows. On a CPU torch has neither
  its kernel nor its gradient.
- SdpaRowAttention: one plain causal ``scaled_dot_product_attention`` a row.

Two batches unless ``--rows`` says otherwise: rows of several lengths, and one row, where all three
are plain causal attention.
Before anything is timed outputs and gradients are compared, and the script ends where they are
apart. Counted are 2 length^2 x heads x head size operations a row forward and twice as many
backward, as causal attention needs them; what is computed a second time counts once. What is made
once for all layers of a batch (a block mask) is made before.

Not measured: projections, rotation of positions, other ranks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from megatron.core.transformer import TransformerConfig
from torch import Tensor
from torch.nn import functional

from axisrl.ops.row_layout import RowLayout
from axisrl_megatron.attention import CoreAttention, RowAttention, RowParams
from axisrl_megatron.flex import FlexRowAttention
from report import Spread, cpu_name, load_average, short, table, today, versions

TOKENS = {"cpu": 1024, "cuda": 16384}
DTYPE = {"cpu": torch.float32, "cuda": torch.bfloat16}
NEAR = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
"""How far apart results may be, of the largest."""
SHARES = (16, 12, 8, 8, 6, 4, 3, 3, 2, 1, 1)
"""Of the rows of several lengths, in 64ths of the tokens."""
HEADER = ("rows", "core attention", "forward, s", "both, s", "of RowAttention", "TFLOP/s", "apart")


class SdpaRowAttention(CoreAttention):
    """One plain causal call a row."""

    def attend(
        self, query_1HND: Tensor, key_1KSD: Tensor, value_1KSD: Tensor, params: RowParams
    ) -> Tensor:
        """(1, N, H, D)."""
        lengths = list(params.layout.lengths)
        rows = [torch.split(x, lengths, dim=2) for x in (query_1HND, key_1KSD, value_1KSD)]
        found = [
            functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=self.scale, enable_gqa=True
            )
            for query, key, value in zip(*rows, strict=True)
        ]
        return torch.cat(found, dim=2).transpose(1, 2)


SIDES: Mapping[str, type[CoreAttention]] = {
    side.__name__: side for side in (RowAttention, FlexRowAttention, SdpaRowAttention)
}


class Inputs(NamedTuple):
    """Query, key and value as Megatron gives them, (N, 1, heads, D), the rows, and the gradient of
    what comes out."""

    projected: tuple[Tensor, Tensor, Tensor]
    rows: RowLayout
    gradient_N1O: Tensor

    @property
    def operations(self) -> float:
        """Forward."""
        _, _, heads, size = self.projected[0].shape
        return 2.0 * sum(length**2 for length in self.rows.lengths) * heads * size


class Measured(NamedTuple):
    """Seconds of one side; None where it has no backward."""

    forward: Spread
    both: Spread | None


def lengths_of(tokens: int) -> list[int]:
    """Of rows that together have 64ths of ``tokens``, most of them off every power of two."""
    share = tokens // 64
    off = share // 7
    found = [share * each for each in SHARES]
    return [length + (off, -off)[i % 2] for i, length in enumerate(found[:-1])] + found[-1:]


def inputs(args: argparse.Namespace, lengths: Sequence[int]) -> Inputs:
    """Random ones."""
    device, dtype = torch.device(args.device), DTYPE[args.device]
    generator = torch.Generator(device).manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device, dtype=dtype)

    tokens = sum(lengths)
    projected = [
        drawn(tokens, 1, heads, args.size).requires_grad_()
        for heads in (args.heads, args.kv_heads, args.kv_heads)
    ]
    return Inputs(
        (projected[0], projected[1], projected[2]),
        RowLayout.from_lengths(lengths, device),
        drawn(tokens, 1, args.heads * args.size),
    )


Forward = Callable[[Sequence[Tensor]], Tensor]
"""Of query, key and value."""


def side(name: str, args: argparse.Namespace, given: Inputs) -> Forward:
    """A forward pass of a core attention, made and called as a layer does."""
    config = TransformerConfig(
        num_layers=1,
        hidden_size=args.heads * args.size,
        num_attention_heads=args.heads,
        num_query_groups=args.kv_heads,
    )
    core = SIDES[name](config, 1)
    params = RowParams.of(given.rows)

    def forward(projected: Sequence[Tensor]) -> Tensor:
        found: Tensor = core(*projected, None, packed_seq_params=params)
        return found

    return forward


def has_gradient(name: str, device: str) -> bool:
    """False of FlexAttention on a CPU."""
    return name != FlexRowAttention.__name__ or device != "cpu"


def passed(forward: Forward, given: Inputs, gradient: bool) -> list[Tensor]:
    """The output and, with ``gradient``, the gradients of query, key and value."""
    if not gradient:
        return [forward([each.detach() for each in given.projected])]
    found = forward(given.projected)
    grads = torch.autograd.grad(found, given.projected, given.gradient_N1O)
    return [found.detach(), *grads]


def apart(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """Largest difference, of the largest that is wanted."""
    return max(
        float((one.float() - other.float()).abs().max() / other.float().abs().max())
        for one, other in zip(found, wanted, strict=False)  # without gradients there is one
    )


def measure(
    sides: Mapping[str, Forward], given: Inputs, repeat: int, device: str
) -> dict[str, Measured]:
    """Forward, and forward with backward, in turns; the first round is not counted."""
    seconds: dict[tuple[str, bool], list[float]] = {}
    for round_ in range(repeat + 1):
        for name, forward in sides.items():
            for gradient in (False, True)[: 1 + has_gradient(name, device)]:
                _wait(device)
                begun = time.perf_counter()
                passed(forward, given, gradient)
                _wait(device)
                if round_:
                    taken = time.perf_counter() - begun
                    seconds.setdefault((name, gradient), []).append(taken)
    return {
        name: Measured(
            Spread.of(seconds[name, False]),
            Spread.of(seconds[name, True]) if (name, True) in seconds else None,
        )
        for name in sides
    }


def compare(args: argparse.Namespace, title: str, lengths: Sequence[int]) -> list[list[str]]:
    """Lines of the table for one batch. Raises ``SystemExit`` when two sides answer differently."""
    given = inputs(args, lengths)
    sides = {name: side(name, args, given) for name in args.sides}
    wanted = passed(side(RowAttention.__name__, args, given), given, True)
    distances = {
        name: apart(passed(forward, given, has_gradient(name, args.device)), wanted)
        for name, forward in sides.items()
    }
    near = NEAR[DTYPE[args.device]]
    if far := {name: value for name, value in distances.items() if not value < near}:
        raise SystemExit(f"{title}: apart from RowAttention by more than {near}: {far}")
    found = measure(sides, given, args.repeat, args.device)
    base = found.get(RowAttention.__name__)
    return [
        [title, name, *_cells(found[name], base, given), f"{distances[name]:.1e}"] for name in sides
    ]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=tuple(TOKENS))
    parser.add_argument("--tokens", type=int, help="a multiple of 64")
    parser.add_argument(
        "--rows", nargs="*", type=int, default=[1], help="batches of so many equal rows"
    )
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--size", type=int, default=128, help="of a head")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--repeat", type=int, default=10)
    args = parser.parse_args(arguments)
    args.tokens = args.tokens or TOKENS[args.device]
    if args.tokens % 64:
        parser.error(f"--tokens {args.tokens} is no multiple of 64")
    return args


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, measure and print."""
    args = parse(arguments)
    mixed = lengths_of(args.tokens)
    told = f"{len(mixed)} of {min(mixed):,} to {max(mixed):,}"
    lines = compare(args, told, mixed)
    for rows in args.rows:
        length = args.tokens // rows
        lines += compare(args, f"{rows} of {length:,}", [length] * rows)
    cuda = args.device == "cuda"
    machine = torch.cuda.get_device_name() if cuda else f"{cpu_name()}, load {load_average()}"
    print(f"{today()}, {machine}, {DTYPE[args.device]}, {args.tokens:,} tokens,")
    print(f"{args.heads} heads x {args.size}, {args.kv_heads} key-value heads")
    print(versions(("torch", "megatron-core")))
    print()
    print(table(HEADER, lines))


def _cells(found: Measured, base: Measured | None, given: Inputs) -> list[str]:
    """Times, the ratio to RowAttention's, and the rate; forward alone where that is all."""
    if found.both is None:
        both, taken, counted = "none on a CPU", found.forward, given.operations
        beside = base.forward if base else None
    else:
        both, taken, counted = str(found.both), found.both, 3 * given.operations
        beside = base.both if base else None
    ratio = f"{taken.median / beside.median:.2f}" if beside else ""
    return [str(found.forward), both, ratio, short(counted / taken.median / 1e12)]


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
