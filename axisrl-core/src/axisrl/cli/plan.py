"""What a dry run prints: the configuration with origins, the components, what would be started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from axisrl.cli.tables import print_table
from axisrl.config.render import render
from axisrl.plugins.building import extras_command, missing_modules

if TYPE_CHECKING:
    from axisrl.config.load import LoadedConfig
    from axisrl.config.resolve import UsedComponent
    from axisrl.config.schema import RunConfig
    from axisrl.plugins.manager import PluginManager
    from axisrl.plugins.records import PluginRecord

_PARTS = {"value": "value model"}
"""What a role is called where it is not its name."""


def print_plan(loaded: LoadedConfig, folder: Path, manager: PluginManager) -> None:
    """Print everything a person wants to check before a long run."""
    click.echo(f"# recipe {loaded.recipe}; each value with where it was set")
    click.echo(render(loaded.tree, loaded.origins))
    owners = {record.name: record for record in manager.records() if record.state == "active"}
    columns = ("key", "component", "distribution", "version", "target")
    print_table(columns, [_row(used, owners[used.resolved.plugin]) for used in loaded.components])
    for line in _not_here(loaded.components, owners):
        click.echo(line)
    click.echo()
    print_table(("part", "processes", "cpus", "gpus", "where"), _actors(loaded.config))
    click.echo()
    if loaded.config.placement.kind == "ray":
        click.echo(f"GPUs: {_gpus(loaded.config):g} in all")
    for line in _work(loaded.config):
        click.echo(line)
    click.echo(f"run folder: {folder}")


def _row(used: UsedComponent, owner: PluginRecord) -> tuple[str, ...]:
    where = owner.distribution or str(owner.path or owner.value)
    return used.path, used.id, where, owner.version or "-", used.resolved.component.target


def _not_here(
    components: Sequence[UsedComponent], owners: Mapping[str, PluginRecord]
) -> Iterator[str]:
    """What the run needs and this machine lacks, with what installs it."""
    for used in components:
        component = used.resolved.component
        if missing := missing_modules(component):
            distribution = owners[used.resolved.plugin].distribution
            yield (
                f"not checked: options of {used.path} that only {', '.join(missing)} knows; it is "
                f"not installed here, and {used.id} needs it "
                f"({extras_command(component.extras, missing, distribution)})"
            )


def _actors(config: RunConfig) -> list[tuple[str, ...]]:
    placement = config.placement
    if placement.kind == "inline":
        return [("everything", "1", "all", config.model.device, "this process")]
    where = placement.address or "a local Ray"
    shared = f"{where}, GPUs in turns" if placement.colocate else where
    cpus = f"{placement.cpus_per_actor:g}"
    engines = placement.engines * placement.engine_nodes
    trainers: list[tuple[str, ...]] = [
        (_PARTS.get(role, role), str(count), cpus, f"{placement.gpus_trainer:g}", shared)
        for role, count in config.models.items()
    ]
    players: list[tuple[str, ...]] = [
        ("engine", str(engines), cpus, f"{placement.gpus_engine:g}", shared),
        ("rollout workers", str(config.rollout.workers), cpus, "0", where),
    ]
    judges = (("verifiers", placement.verifiers), ("rewards", placement.rewards))
    players += [(name, str(count), cpus, "0", where) for name, count in judges if count]
    players += [
        (f"service {name}", str(use.replicas), cpus, f"{use.gpus:g}", where)
        for name, use in config.services.items()
    ]
    return trainers + players * ("engine" in config.needs)


def _gpus(config: RunConfig) -> float:
    """GPUs that Ray sets aside: where they are shared, one for each bundle."""
    where = config.placement
    plays = "engine" in config.needs
    models = sum(config.models.values()) * where.gpus_trainer
    engines = where.engines * where.engine_nodes * where.gpus_engine * plays
    both = models + engines
    if both:
        both = where.shared_gpus or both
    return both + sum(use.replicas * use.gpus for use in config.services.values()) * plays


def _work(config: RunConfig) -> list[str]:
    rollout, train = config.rollout, config.train
    windows = 1 if config.mode == "mismatch" else train.updates // train.updates_per_sync
    learnt = f", then {train.updates_per_sync} updates of {train.batch_size} rollouts"
    lines = (
        []
        if config.mode == "eval"
        else [
            f"windows: {windows}, each {config.groups_per_window} tasks x {rollout.group_size} "
            f"rollouts{learnt if 'loss' in config.needs else ''}",
        ]
    )
    lines += [
        f"tokens: at most {rollout.sampling.max_tokens} sampled a call, {rollout.max_turns} calls "
        f"a rollout, {train.max_tokens_per_batch} in a packed batch",
    ]
    if config.eval is not None:
        tasks = config.eval.tasks or "all"
        times = ["at the start"] if config.eval.at_start else []
        times += [f"every {config.eval.every} updates"] if config.eval.every else []
        times = ["once"] if config.mode == "eval" else [*times, "at the end"]
        lines.append(f"evaluation: {tasks} tasks, {', '.join(times)}")
    return lines
