"""``axisrl runs``: what is in the output folder, and what one run learnt.

Reads run folders only; imports neither pydantic nor numpy, so a list is instant. Model text is
shown without its control characters: an answer cannot drive the terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from axisrl.cli.paths import output_root
from axisrl.runfolder import RunFolder, find_run, list_runs, reward_of

_SHOWN_ANSWERS = 4
_TEXT_WIDTH = 240
_SCORES = re.compile(r"eval/(accuracy|reward|pass@\d+)")
_BARS = "▁▂▃▄▅▆▇█"


class Change(NamedTuple):
    """One held-out task before and after training: its greedy answers at two evaluations."""

    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def outcome(self) -> str:
        """``fixed``, ``broken``, ``right`` or ``wrong``, by what the verifiers said twice."""
        passed = (bool(self.before["summary"]["passed"]), bool(self.after["summary"]["passed"]))
        return {(False, True): "fixed", (True, False): "broken", (True, True): "right"}.get(
            passed, "wrong"
        )


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON list instead of a table.")
@click.pass_context
def runs(context: click.Context, as_json: bool) -> None:
    """List runs, or show what one run learnt."""
    if context.invoked_subcommand is None:
        context.invoke(list_command, as_json=as_json)


@runs.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON list instead of a table.")
def list_command(as_json: bool) -> None:
    """List the runs in the output folder, newest first."""
    root = output_root()
    found = [_overview(run) for run in list_runs(root)]
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif not found:
        click.echo(f"no runs in {root}; start one: axisrl run RECIPE")
    else:
        _print_table(found)


@runs.command("show")
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="The same facts as one JSON object.")
def show_command(run: str | None, as_json: bool) -> None:
    """Show reward, evaluation and answers of RUN: a name, a folder, or the newest run."""
    folder = find_run(output_root(), run)
    facts = _facts(folder)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    _print_facts(folder, facts)
    _print_answers(folder)
    if facts["resume"]:
        click.echo(f"\ngo on:   {facts['resume']}")
    click.echo(f"\nfolder:  {folder.path}\ncurves:  axisrl view {_shortest(folder)}")


def changes(folder: RunFolder) -> list[Change]:
    """The tasks of the first evaluation beside those of the last; empty with fewer than two."""
    steps = folder.rollout_steps("eval")
    if len(steps) < 2:
        return []
    before, after = (_by_task(folder.rollouts("eval", step)) for step in (steps[0], steps[-1]))
    return [Change(row, after[task]) for task, row in before.items() if task in after]


def _overview(run: RunFolder) -> dict[str, Any]:
    metrics = run.last_metrics
    return {
        "name": run.name,
        "recipe": run.manifest.get("recipe", ""),
        "created": run.manifest.get("created", ""),
        "state": run.state,
        "step": metrics.get("step"),
        "reward": run.last_reward,
        "path": str(run.path),
        "resume": run.resume_command,
    }


def _facts(run: RunFolder) -> dict[str, Any]:
    metrics = run.metrics
    rewards = [value for entry in metrics if (value := reward_of(entry)) is not None]
    names = sorted({name for entry in metrics for name in entry if _SCORES.fullmatch(name)})
    return {
        **_overview(run),
        "step": metrics[-1]["step"] if metrics else None,
        "rewards": rewards,
        "reward": _ends(rewards),
        "eval": {name: _ends([e[name] for e in metrics if name in e]) for name in names},
    }


def _ends(values: Sequence[float]) -> dict[str, float] | None:
    return {"first": values[0], "last": values[-1]} if values else None


def _print_table(found: Sequence[dict[str, Any]]) -> None:
    from axisrl.cli.tables import print_table

    columns = ("name", "state", "step", "reward", "recipe")
    print_table(columns, ([_cell(run[column]) for column in columns] for run in found))
    for run in found:
        if run["resume"]:
            click.echo(f"\n{run['name']} can go on:\n  {run['resume']}")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _print_facts(run: RunFolder, facts: dict[str, Any]) -> None:
    step = "no step yet" if facts["step"] is None else f"step {facts['step']}"
    click.echo(f"{run.name}  {facts['state']}, {step}  ({facts['recipe']})")
    if facts["reward"]:
        click.echo(f"\n{'reward':<16}{_arrow(facts['reward'])}  {_sparkline(facts['rewards'])}")
    for name, ends in facts["eval"].items():
        click.echo(f"{name:<16}{_arrow(ends)}")


def _arrow(ends: dict[str, float]) -> str:
    return f"{ends['first']:.3f} -> {ends['last']:.3f}"


def _sparkline(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in values[-60:])


def _print_answers(run: RunFolder) -> None:
    pairs = changes(run)
    if not pairs:
        return
    counts = {kind: sum(pair.outcome == kind for pair in pairs) for kind in ("fixed", "broken")}
    first, *_, last = run.rollout_steps("eval")
    click.echo(
        f"\nheld-out answers at step {first} and step {last}: of {len(pairs)} tasks, "
        f"{counts['fixed']} newly right, {counts['broken']} newly wrong"
    )
    for pair in _examples(pairs):
        click.echo(f"\n  task    {_shortened(_said(pair.before, 'user'))}")
        for label, row in (("before", pair.before), ("after ", pair.after)):
            mark = "right" if row["summary"]["passed"] else "wrong"
            click.echo(f"  {label}  [{mark}] {_shortened(_said(row, 'assistant'))}")


def _examples(pairs: Sequence[Change]) -> Iterator[Change]:
    """Mostly what changed, but never only the successes: one that is still or newly wrong too."""
    good = [pair for pair in pairs if pair.outcome == "fixed"]
    bad = [pair for pair in pairs if pair.outcome in ("broken", "wrong")]
    right = [pair for pair in pairs if pair.outcome == "right"]
    yield from (good + right)[: _SHOWN_ANSWERS - bool(bad)]
    yield from bad[:1]


def _by_task(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The greedy row of each task: an evaluation writes them before the sampled ones."""
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        first.setdefault(row["summary"]["task_id"], row)
    return first


def _said(row: dict[str, Any], role: str) -> str:
    said = [message["content"] for message in row["messages"] if message["role"] == role]
    return said[-1] if said else ""


def _shortened(text: str) -> str:
    from axisrl.cli.tables import printable

    line = printable(" ".join(text.split()))
    return line if len(line) <= _TEXT_WIDTH else line[: _TEXT_WIDTH - 1] + "…"


def _shortest(run: RunFolder) -> str:
    return run.name if run.path.parent == output_root().resolve() else str(run.path)
