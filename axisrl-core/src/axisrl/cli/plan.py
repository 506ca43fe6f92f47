"""What a dry run prints: the configuration with origins, the components, what would be started."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import click

from axisrl.cli.tables import print_table
from axisrl.config.render import render

if TYPE_CHECKING:
    from axisrl.config.load import LoadedConfig
    from axisrl.config.resolve import UsedComponent
    from axisrl.config.schema import RunConfig


def print_plan(loaded: LoadedConfig, folder: Path) -> None:
    """Print everything a person wants to check before a long run."""
    click.echo(f"# recipe {loaded.recipe}; each value with where it was set")
    click.echo(render(loaded.tree, loaded.origins))
    columns = ("key", "component", "distribution", "version", "target")
    print_table(columns, [_row(component) for component in loaded.components])
    click.echo()
    print_table(("part", "processes", "cpus", "gpus", "where"), _actors(loaded.config))
    click.echo()
    for line in _work(loaded.config):
        click.echo(line)
    click.echo(f"run folder: {folder}")


def _row(used: UsedComponent) -> tuple[str, ...]:
    target = used.resolved.component.target
    distribution, version = _distribution(target)
    return used.path, used.id, distribution, version, target


def _distribution(target: str) -> tuple[str, str]:
    package = target.partition(":")[0].partition(".")[0]
    owners = metadata.packages_distributions().get(package, [])
    return (owners[0], metadata.version(owners[0])) if owners else ("(local)", "-")


def _actors(config: RunConfig) -> list[tuple[str, ...]]:
    placement = config.placement
    if placement.kind == "inline":
        return [("everything", "1", "all", config.model.device, "this process")]
    where = placement.address or "a local Ray"
    cpus = f"{placement.cpus_per_actor:g}"
    return [
        ("trainer", "1", cpus, f"{placement.gpus_trainer:g}", where),
        ("engine", "1", cpus, f"{placement.gpus_engine:g}", where),
        ("rollout workers", str(config.rollout.workers), cpus, "0", where),
    ]


def _work(config: RunConfig) -> list[str]:
    rollout, train = config.rollout, config.train
    windows = train.updates // train.updates_per_sync
    lines = [
        f"windows: {windows}, each {config.groups_per_window} tasks x {rollout.group_size} "
        f"rollouts, then {train.updates_per_sync} updates of {train.batch_size} rollouts",
        f"tokens: at most {rollout.sampling.max_tokens} sampled a call, {rollout.max_turns} calls "
        f"a rollout, {train.max_tokens_per_batch} in a packed batch",
    ]
    if config.eval is not None:
        tasks = config.eval.tasks or "all"
        every = f"every {config.eval.every} updates and" if config.eval.every else "only"
        lines.append(f"evaluation: {tasks} tasks, {every} at the end")
    return lines
