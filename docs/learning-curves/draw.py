"""Trains every recipe of this folder under three seeds and draws their learning curves.

    python docs/learning-curves/draw.py            train (about 15 minutes on 2 cores), then draw
    python docs/learning-curves/draw.py --gpu      train the recipes that need a GPU, then draw
    python docs/learning-curves/draw.py --draw     draw what the metrics files here hold

Writes ``metrics/<recipe>-<seed>.jsonl`` (a few series of each run's metrics file), ``curves.svg``,
``gpu.svg`` and the table in ``docs/learning-curves.md``. It is run by hand: a test trains the
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
ON_GPU = ("sglang",)
GPU_SEEDS = (0,)
GOAL = 0.8
KEPT = ("step", "reward/mean", "eval/accuracy", "loss/entropy", "loss/clip_fraction")
KEPT += ("loss/grad_norm", "loss/mismatch", "time/rollout_s", "time/train_s", "time/sync_s")
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


def draw(recipes: Sequence[str], seeds: Sequence[int], name: str) -> None:
    """A picture: one panel a recipe, one line a seed."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "axisrl"
    from matplotlib import pyplot

    size = (max(4.5, 2.4 * len(recipes)), 2.9)
    figure, grid = pyplot.subplots(1, len(recipes), figsize=size, sharey=True, squeeze=False)
    panels = grid[0]
    for panel, recipe in zip(panels, recipes, strict=True):
        for seed in seeds:
            steps, rewards = zip(*curve(recipe, seed), strict=True)
            panel.plot(steps, rewards, linewidth=1.4, label=f"seed {seed}")
        panel.axhline(GOAL, color="grey", linewidth=0.8, linestyle="--")
        panel.set_title(recipe)
        panel.set_xlabel("update")
        panel.set_ylim(-0.02, 1.02)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("mean reward")
    panels[0].legend(frameon=False, fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(HERE / name, metadata={"Date": None})


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
    gpu = "--gpu" in arguments
    if "--draw" not in arguments:
        for recipe in ON_GPU if gpu else ALGORITHMS:
            for seed in GPU_SEEDS if gpu else SEEDS:
                train(recipe, seed)
    draw(ALGORITHMS, SEEDS, "curves.svg")
    draw(ON_GPU, GPU_SEEDS, "gpu.svg")
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    PAGE.write_text(f"{before}{_BEGIN}\n{table()}\n{_END}{after}")


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main(sys.argv[1:])
