"""Trains every recipe of this folder under three seeds and draws their learning curves.

    python docs/learning-curves/draw.py            train (about 15 minutes on 2 cores), then draw
    python docs/learning-curves/draw.py --draw     draw what the metrics files here hold

Writes ``metrics/<algorithm>-<seed>.jsonl`` (a few series of each run's metrics file),
``curves.svg`` and the table in ``docs/learning-curves.md``. It is run by hand: a test trains the
same recipes under one seed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

HERE = Path(__file__).parent
PAGE = HERE.with_suffix(".md")
ALGORITHMS = ("grpo", "gspo", "cispo", "icepop", "ppo")
SEEDS = (0, 1, 2)
GOAL = 0.8
KEPT = ("step", "reward/mean", "loss/entropy", "loss/clip_fraction", "loss/grad_norm")
_BEGIN, _END = "<!-- table: drawn by docs/learning-curves/draw.py -->", "<!-- end of table -->"


def train(algorithm: str, seed: int) -> None:
    """One run; its metrics come here."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "axisrl", "run", str(HERE / f"{algorithm}.yaml")]
        command += [f"seed={seed}", "--plain", "--run-dir", f"{folder}/run"]
        print(" ".join(command[1:]), flush=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    kept = [{key: row[key] for key in KEPT if key in row} for row in map(json.loads, lines)]
    target = HERE / "metrics" / f"{algorithm}-{seed}.jsonl"
    target.parent.mkdir(exist_ok=True)
    target.write_text("".join(json.dumps(line) + "\n" for line in kept))


def curve(algorithm: str, seed: int) -> list[tuple[int, float]]:
    """(step, mean reward of the window that begins there)."""
    text = (HERE / "metrics" / f"{algorithm}-{seed}.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    return [(row["step"], row["reward/mean"]) for row in rows if "reward/mean" in row]


def draw() -> None:
    """``curves.svg``: one panel an algorithm, one line a seed."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "axisrl"
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(ALGORITHMS), figsize=(12, 2.9), sharey=True)
    for panel, algorithm in zip(panels, ALGORITHMS, strict=True):
        for seed in SEEDS:
            steps, rewards = zip(*curve(algorithm, seed), strict=True)
            panel.plot(steps, rewards, linewidth=1.4, label=f"seed {seed}")
        panel.axhline(GOAL, color="grey", linewidth=0.8, linestyle="--")
        panel.set_title(algorithm)
        panel.set_xlabel("update")
        panel.set_ylim(-0.02, 1.02)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("mean reward")
    panels[0].legend(frameon=False, fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(HERE / "curves.svg", metadata={"Date": None})


def table() -> str:
    """Start, first update above the goal and end, the mean over seeds with the extremes."""
    rows = [
        "| algorithm | first window | above 0.8 at update | last window |",
        "| --- | --- | --- | --- |",
    ]
    for algorithm in ALGORITHMS:
        curves = [curve(algorithm, seed) for seed in SEEDS]
        reached = [next((step for step, reward in c if reward > GOAL), None) for c in curves]
        there = ", ".join("never" if step is None else str(step) for step in reached)
        start, end = _spread([c[0][1] for c in curves]), _spread([c[-1][1] for c in curves])
        rows.append(f"| {algorithm} | {start} | {there} | {end} |")
    return "\n".join(rows)


def main(arguments: Sequence[str]) -> None:
    """Train unless told not to, then draw."""
    if "--draw" not in arguments:
        for algorithm in ALGORITHMS:
            for seed in SEEDS:
                train(algorithm, seed)
    draw()
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    PAGE.write_text(f"{before}{_BEGIN}\n{table()}\n{_END}{after}")


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main(sys.argv[1:])
