"""Times one update of axisrl beside one of TRL's ``GRPOTrainer``, taking turns: A B A B ...

    python benchmarks/update_vs_trl.py            # lengths as sampled
    python benchmarks/update_vs_trl.py --exact    # every answer has exactly --max-tokens tokens

The same on both sides: model and dtype, prompts (rendered by axisrl, in its order), group size,
sampling, token limit, AdamW and learning rate, clipping, no KL term, threads. axisrl is
``axisrl run`` with recipe ``gsm8k/grpo-cpu``; its phases are its own ``time/*`` metrics. TRL is
``GRPOTrainer`` without vLLM, without gradient checkpointing and with ``--trl-rows`` rows a
micro-batch; ``--tune`` finds the fastest value on a machine.

- rollout: prompts to rewards and advantages. axisrl also stores traces and plays environments.
- train: forward, backward and optimizer. Both without a pass for old log-probabilities.
- sync: new weights into the engine. TRL generates with the weights it trains: 0.
- total: wall time from the word "go" to the end, everything else included. cpu: CPU time of all
  threads meanwhile, waiting in a loop included.

Not measured: start-up, evaluation, checkpoints, more than one device, how fast either learns. The
first update of each side is a warm-up and is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import Spread, cpu_name, load_average, markdown_row, short, table, today, versions
from setting import endless, load, model_folder, prompt_tasks
from side import Side, Taken

HERE = Path(__file__).parent
RECIPE = "gsm8k/grpo-cpu"
PHASES = ("rollout", "train", "sync", "total", "cpu")
TUNED = (8, 16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One update: seconds of its phases and tokens."""

    rollout: float
    train: float
    sync: float
    total: float
    cpu: float
    """CPU time of all threads, which other programs on the machine disturb less."""
    sampled: float
    """Tokens generated."""
    tokens: float
    """Prompt and answer tokens that the training pass needs; padding is not among them."""
    computed: float
    """Positions that the training pass computes, padding included."""

    @property
    def sampled_per_s(self) -> float:
        """Generated tokens a second of the rollout phase."""
        return self.sampled / self.rollout

    @property
    def trained_per_s(self) -> float:
        """Prompt and answer tokens a second of the training phase."""
        return self.tokens / self.train


def axisrl_update(metrics: Mapping[str, float], rollouts: int, taken: Taken) -> Update:
    """From one line of ``metrics.jsonl``."""
    return Update(
        rollout=metrics["time/rollout_s"],
        train=metrics["time/train_s"],
        sync=metrics["time/sync_s"],
        total=taken.wall_s,
        cpu=taken.cpu_s,
        sampled=metrics["rollout/tokens_mean"] * rollouts,
        tokens=metrics["train/tokens"],
        computed=metrics["train/tokens"],
    )


def trl_update(times: Mapping[str, float], taken: Taken) -> Update:
    """From one line of TRL's side."""
    return Update(
        rollout=times["rollout_s"],
        train=times["train_s"],
        sync=0.0,
        total=taken.wall_s,
        cpu=taken.cpu_s,
        sampled=times["sampled"],
        tokens=times["tokens"],
        computed=times["forwarded"],
    )


def ratio(ours: float, theirs: float) -> str:
    """How many times TRL's value ``theirs`` is ``ours``; nothing where either side has none."""
    return f"{theirs / ours:.2f}" if ours and theirs else "-"


def summary(ours: Sequence[Update], theirs: Sequence[Update]) -> list[list[str]]:
    """Rows of the table: what, axisrl, TRL, how many times faster axisrl is (medians)."""
    rows = []
    for phase in PHASES:
        a, b = (_spread(side, phase) for side in (ours, theirs))
        rows.append([f"{phase}, s", str(a), str(b), ratio(a.median, b.median)])
    for name, title in (
        ("sampled", "tokens generated"),
        ("tokens", "tokens trained on"),
        ("computed", "the same with padding"),
    ):
        a, b = (_spread(side, name) for side in (ours, theirs))
        rows.append([title, str(a), str(b), "-"])
    for name, title in (
        ("sampled_per_s", "generated tokens/s"),
        ("trained_per_s", "trained tokens/s"),
    ):
        a, b = (_spread(side, name) for side in (ours, theirs))
        rows.append([title, str(a), str(b), ratio(b.median, a.median)])
    return rows


def row(ours: Sequence[Update], theirs: Sequence[Update], mode: str) -> str:
    """One line for ``docs/benchmarks.md``."""
    cells = [today(), cpu_name(), mode]
    for name in ("sampled_per_s", "trained_per_s"):
        a, b = (_spread(side, name).median for side in (ours, theirs))
        cells.append(f"{short(a)} / {short(b)} = {ratio(b, a)}")
    a, b = (_spread(side, "total").median for side in (ours, theirs))
    cells.append(f"{short(a)} / {short(b)}")
    return markdown_row([*cells, ratio(a, b)])


def axisrl_command(args: argparse.Namespace, model: Path, run_dir: Path) -> list[str]:
    """``axisrl run`` with the recipe's settings, this script's sizes and the baton."""
    return [
        *(sys.executable, "-m", "axisrl", "run", RECIPE),
        *("--plugin", str(HERE / "baton.py"), "--run-dir", str(run_dir), "--plain"),
        *overrides(args, model),
    ]


def overrides(args: argparse.Namespace, model: Path) -> list[str]:
    """Settings that differ from the recipe's."""
    return [
        f"model.name={model}",
        f"model.dtype={args.dtype}",
        f"model.device={args.device}",
        f"train.updates={args.updates + 1}",
        f"train.batch_size={args.prompts * args.group_size}",
        f"rollout.group_size={args.group_size}",
        f"rollout.sampling.max_tokens={args.max_tokens}",
        "eval=null",
        "loggers=[core/jsonl]",
    ]


def trl_job(args: argparse.Namespace, model: Path, folder: Path, rows: int) -> Path:
    """Write what TRL's side has to do; the file's path."""
    loaded, manager = load(RECIPE, overrides(args, model))
    tasks = prompt_tasks(loaded, manager, args.prompts * (args.updates + 1))
    config = loaded.config
    job = {
        "model": str(model),
        "device": args.device,
        "dtype": args.dtype,
        "threads": args.threads,
        "rows": rows,
        "updates": config.train.updates,
        "batch_size": config.train.batch_size,
        "group_size": config.rollout.group_size,
        "max_tokens": config.rollout.sampling.max_tokens,
        "temperature": config.rollout.sampling.temperature,
        "lr": config.trainer.options["lr"],
        "output": str(folder / "trl.jsonl"),
        "tasks": [{"prompt": task.prompt, "answer": task.answer} for task in tasks],
    }
    path = folder / "job.json"
    path.write_text(json.dumps(job))
    return path


def compare(args: argparse.Namespace, model: Path, folder: Path) -> tuple[list[Update], ...]:
    """Run both sides in turns; the updates of axisrl and those of TRL, warm-up left out."""
    job = trl_job(args, model, folder, args.trl_rows)
    commands = {
        "axisrl": axisrl_command(args, model, folder / "run"),
        "trl": [sys.executable, str(HERE / "trl_side.py"), str(job)],
    }
    taken: dict[str, list[Taken]] = {name: [] for name in commands}
    with ExitStack() as stack:
        sides = [
            stack.enter_context(Side(name, command, args.threads, folder / f"{name}.log"))
            for name, command in commands.items()
        ]
        for side in sides:
            side.wait_until_ready()
        for number in range(args.updates + 1):
            for side in sides:
                taken[side.name].append(side.update())
            print(_progress(number, args.updates, taken), file=sys.stderr)
        for side in sides:
            side.finish()
    rollouts = args.prompts * args.group_size
    metrics = [line for line in _lines(folder / "run/metrics.jsonl") if "time/sync_s" in line]
    ours = [axisrl_update(m, rollouts, t) for m, t in zip(metrics, taken["axisrl"], strict=True)]
    return ours[1:], _trl_updates(folder, taken["trl"])


def tune(args: argparse.Namespace, model: Path, folder: Path) -> list[list[str]]:
    """TRL alone with several micro-batch sizes; rows of a table."""
    rows = []
    for size in TUNED:
        inside = folder / f"rows-{size}"
        inside.mkdir()
        job = trl_job(args, model, inside, size)
        command = [sys.executable, str(HERE / "trl_side.py"), str(job)]
        with Side("trl", command, args.threads, inside / "trl.log") as side:
            side.wait_until_ready()
            taken = [side.update() for _ in range(args.updates + 1)]
            side.finish()
        updates = _trl_updates(inside, taken)
        cells = [str(_spread(updates, name)) for name in ("rollout", "train", "cpu")]
        print(f"{size} rows: {', '.join(cells)}", file=sys.stderr)
        rows.append([str(size), *cells])
    return rows


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m", help="named model or folder")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--updates", type=int, default=5, help="measured updates of each side")
    parser.add_argument("--prompts", type=int, default=8, help="prompts of an update")
    parser.add_argument("--group-size", type=int, default=8, help="answers to a prompt")
    parser.add_argument("--max-tokens", type=int, default=32, help="most tokens of an answer")
    parser.add_argument("--threads", type=int, default=2, help="threads of either side")
    parser.add_argument("--trl-rows", type=int, default=16, help="rows of TRL's micro-batch")
    parser.add_argument("--exact", action="store_true", help="no answer ends before the limit")
    parser.add_argument("--tune", action="store_true", help="try TRL's micro-batch sizes instead")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/axisrl"))
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and print."""
    args = parse()
    print(f"{today()}, {cpu_name()}, {args.threads} threads, load {load_average()}")
    print(versions())
    mode = f"{'exact' if args.exact else 'as sampled'}, threads: {args.threads}"
    print(
        f"{args.model}, {args.dtype}, {args.device}: {args.prompts} prompts x {args.group_size} "
        f"answers, at most {args.max_tokens} tokens, {mode}, TRL's micro-batch {args.trl_rows}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, manager = load(RECIPE, [])
        model = model_folder(args.model, manager, args.cache.expanduser())
        if args.exact:
            model = endless(model, folder / "endless")
        if args.tune:
            print(table(["rows", "rollout, s", "train, s", "cpu, s"], tune(args, model, folder)))
            return
        ours, theirs = compare(args, model, folder)
    print()
    header = ["median (least to most)", "axisrl", "TRL", "axisrl is faster by"]
    print(table(header, summary(ours, theirs)))
    print(f"\nload at the end {load_average()}; row for docs/benchmarks.md:")
    print(row(ours, theirs, mode))


def _trl_updates(folder: Path, taken: Sequence[Taken]) -> list[Update]:
    lines = _lines(folder / "trl.jsonl")
    return [trl_update(times, each) for times, each in zip(lines, taken, strict=True)][1:]


def _spread(updates: Sequence[Update], name: str) -> Spread:
    return Spread.of([getattr(update, name) for update in updates])


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        yield json.loads(line)


def _progress(number: int, updates: int, taken: Mapping[str, Sequence[Taken]]) -> str:
    said = ", ".join(f"{name} {short(each[-1].wall_s)} s" for name, each in taken.items())
    return f"{'warm-up' if number == 0 else f'{number}/{updates}'}: {said}"


if __name__ == "__main__":
    main()
