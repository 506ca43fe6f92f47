"""How near axisrl's local engine and trainer come to what the machine can do, measured in one run.

    python benchmarks/roofline.py                                  # SmolLM2-135M, float32, CPU
    python benchmarks/roofline.py --device cuda --dtype bfloat16
    python benchmarks/roofline.py --model tiny                     # a quick try
    python benchmarks/roofline.py --model random-1.5b              # that size, made from a seed

- GEMM: the fastest of some square matrix products in the model's dtype: the peak.
- decode: ``local/engine`` with ``--rows`` requests of one prompt token: nothing but decoding.
- prefill: as many requests of ``--prompt`` tokens, all different, that ask for one token.
- train: ``local/trainer`` with GRPO's loss: ``--rows`` rows of prompt and answer in one update,
  forward, backward, clipping and AdamW.

The share of the peak counts the multiplications that the tokens need, two operations each: 2 N a
token forward, 6 N forward and backward. N is split: the layers' matrices count for every token, the
output matrix only where logits are needed (a sampled or a trained token); the embedding is a lookup
and counts nothing. Attention over the context is left out (about 3 % at 128 tokens of
SmolLM2-135M), and so are norms, sampling and the optimizer: they take time and earn no share.

Decoding reads every matrix once a pass, so on a fast device memory is its limit: the bytes of
weights it reads stand beside the measured bandwidth of a copy.

Not measured: rollouts, environments and weight sync (``update_vs_trl.py`` has them), more than one
device, memory use. A warm-up of each piece is left out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from axisrl.types import ModelSpec
from axisrl_local.config import EngineConfig
from probe import EngineProbe, TrainerProbe, Work, random_samples
from report import Spread, cpu_name, load_average, markdown_row, short, table, today, versions
from shapes import ModelSize, folder_of, size_of

SQUARES = {"cpu": (512, 1024, 2048), "cuda": (4096, 8192, 12288)}
COPY_BYTES = {"cpu": 1 << 28, "cuda": 1 << 32}
HEADER = ("", "tokens/s", "needed GFLOP/s", "share of GEMM", "s: median (least to most)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """What the machine does at best."""

    flops: float
    """Operations a second of a matrix product."""
    bandwidth: float
    """Bytes a second, read and written, of a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One piece, measured several times."""

    name: str
    work: Work
    seconds: Spread

    @property
    def tokens_per_s(self) -> float:
        """Tokens through the layers, by the median time."""
        return self.work.body / self.seconds.median

    def flops(self, size: ModelSize) -> float:
        """Needed operations a second."""
        return needed_flops(self.work, size) / self.seconds.median

    def cells(self, size: ModelSize, peak: Peak) -> list[str]:
        """Its line of the table."""
        rate = self.flops(size)
        share = f"{rate / peak.flops:.0%}"
        return [self.name, short(self.tokens_per_s), short(rate / 1e9), share, str(self.seconds)]


def needed_flops(work: Work, size: ModelSize) -> float:
    """Operations that the tokens need, two a multiplication."""
    return (6.0 if work.backward else 2.0) * (work.body * size.body + work.head * size.head)


def weights_read_per_s(decode: Result, rows: int, size: ModelSize, itemsize: int) -> float:
    """Bytes of matrices that decoding reads a second: all of them once for ``rows`` tokens."""
    passes = decode.work.body / rows
    return passes * (size.body + size.head) * itemsize / decode.seconds.median


def row(results: Sequence[Result], size: ModelSize, peak: Peak, what: Sequence[str]) -> str:
    """One line for ``docs/benchmarks.md``."""
    cells = [
        f"{short(each.tokens_per_s)} ({each.flops(size) / peak.flops:.0%})" for each in results
    ]
    return markdown_row([today(), *what, short(peak.flops / 1e9), *cells])


def measure_peak(device: torch.device, dtype: torch.dtype, repeat: int) -> Peak:
    """The rates of matrix products and of a copy too large for a cache."""
    flops = max(_gemm_rate(edge, device, dtype, repeat) for edge in SQUARES[device.type])
    source = torch.zeros(COPY_BYTES[device.type], device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    seconds = timed(lambda: target.copy_(source), device, repeat)
    return Peak(flops=flops, bandwidth=2.0 * source.numel() / min(seconds))


def measure(args: argparse.Namespace, spec: ModelSpec, work: Path) -> Iterator[Result]:
    """Decode, prefill and train."""
    config = EngineConfig(
        max_batch=args.rows,
        max_context=args.prompt + max(args.answer, args.decode) + 1,
        step_tokens=max(args.rows, args.step_tokens),
        batch_invariant=not args.variant,
    )
    engine = EngineProbe(spec, config, work)
    try:
        yield _repeated("decode", lambda: engine.run(1, args.decode), args.repeat)
        yield _repeated("prefill", lambda: engine.run(args.prompt, 1), args.repeat)
    finally:
        engine.stop()
    samples = random_samples(args.rows, args.prompt, args.answer)
    trainer = TrainerProbe(spec, samples, args.max_tokens_per_batch, work)
    try:
        yield _repeated("train", trainer.run, args.repeat)
    finally:
        trainer.stop()


def timed(call: Callable[[], object], device: torch.device, repeat: int) -> list[float]:
    """Seconds of each of ``repeat`` calls, after one that is not counted."""
    seconds = []
    for _ in range(repeat + 1):
        _finish(device)
        begun = time.perf_counter()
        call()
        _finish(device)
        seconds.append(time.perf_counter() - begun)
    return seconds[1:]


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
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--rows", type=int, default=64, help="requests at once, rows of an update")
    parser.add_argument("--prompt", type=int, default=96, help="tokens of a prompt")
    parser.add_argument("--answer", type=int, default=32, help="trained tokens of a row")
    parser.add_argument("--decode", type=int, default=32, help="tokens decoded for each request")
    parser.add_argument("--step-tokens", type=int, default=64, help="the engine's step_tokens")
    parser.add_argument("--variant", action="store_true", help="batch_invariant=false")
    parser.add_argument("--max-tokens-per-batch", type=int, default=2048, help="of the trainer")
    parser.add_argument("--repeat", type=int, default=5, help="measurements of each piece")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 is torch's choice")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/axisrl"))
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and print."""
    args = parse()
    if args.threads:
        torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    dtype = getattr(torch, args.dtype)
    hardware = _hardware(device)
    print(f"{today()}, {hardware}, load {load_average()}")
    print(versions())
    what = f"{args.model} {args.dtype}"
    print(
        f"{what}: {args.rows} rows, prompts of {args.prompt}, answers of {args.answer}, "
        f"{args.decode} tokens decoded, step_tokens {max(args.rows, args.step_tokens)}, "
        f"batch_invariant {not args.variant}"
    )
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        folder = folder_of(args.model, args.cache.expanduser(), work)
        size = size_of(folder)
        spec = ModelSpec(name=args.model, path=folder, dtype=args.dtype, device=args.device)
        peak = measure_peak(device, dtype, args.repeat)
        results = list(measure(args, spec, work))
    print(f"layers {short(size.body / 1e6)} M, output matrix {short(size.head / 1e6)} M parameters")
    print(f"GEMM {short(peak.flops / 1e9)} GFLOP/s, copy {short(peak.bandwidth / 1e9)} GB/s\n")
    print(table(HEADER, [each.cells(size, peak) for each in results]))
    read = weights_read_per_s(results[0], args.rows, size, dtype.itemsize)
    share = f"{read / peak.bandwidth:.0%}"
    print(f"\ndecode reads {short(read / 1e9)} GB/s of weights, {share} of the copy's bandwidth")
    print(f"load at the end {load_average()}; row for docs/benchmarks.md:")
    print(row(results, size, peak, [hardware, what]))


def _repeated(name: str, run: Callable[[], Work], repeat: int) -> Result:
    work = run()
    seconds = []
    for _ in range(repeat):
        begun = time.perf_counter()
        work = run()
        seconds.append(time.perf_counter() - begun)
    return Result(name=name, work=work, seconds=Spread.of(seconds))


def _gemm_rate(edge: int, device: torch.device, dtype: torch.dtype, repeat: int) -> float:
    left, right = (torch.randn(edge, edge, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(left)
    seconds = timed(lambda: torch.mm(left, right, out=out), device, repeat)
    return 2.0 * edge**3 / min(seconds)


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{cpu_name()}, {torch.get_num_threads()} threads"


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
