"""``axisrl run``: from a command line to a loaded configuration, a run folder, and the driver.

Everything that can be wrong is found before anything is written, deleted or started.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from axisrl.cli import INTERRUPTED
from axisrl.cli.arguments import Arguments, refuse_unknown, settled

if TYPE_CHECKING:
    from axisrl.config.load import LoadedConfig
    from axisrl.config.modes import Mode
    from axisrl.plugins.manager import PluginManager
    from axisrl.plugins.manifest import PluginManifest


class _RunCommand(click.Command):
    """Keeps the command line as it was typed, for the manifest and for what to type next."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["axisrl.command"] = ("axisrl", "run", *args)
        rest = super().parse_args(ctx, args)
        known = [option for parameter in self.params for option in parameter.opts]
        refuse_unknown(ctx.params["words"], known)
        return rest


_PATH = click.Path(path_type=Path)


@click.command(cls=_RunCommand, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="RECIPE [key.path=value ...]")
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="FILE|PRESET",
    help="Over the recipe: a YAML file or plugin/preset.",
)
@click.option("--plugin", "plugins", multiple=True, help="Also use: a name, ./file.py or module.")
@click.option("--no-plugin", "no_plugins", multiple=True, help="Leave an installed plugin out.")
@click.option(
    "--logger", "loggers", multiple=True, help="Also log to: wandb, tensorboard or an id."
)
@click.option("--run-dir", type=_PATH, help="The run's folder.  [default: output folder/name]")
@click.option("--name", help="Name of the run.")
@click.option("--seed", type=int, help="Seed of everything random in the run.")
@click.option("--smoke", is_flag=True, help="The recipe at its smallest: seconds on a CPU.")
@click.option("--dry-run", is_flag=True, help="Show configuration and plan; start nothing.")
@click.option("--resume", is_flag=False, flag_value="", metavar="[RUN]", help="Go on with a run.")
@click.option("--allow-drift", is_flag=True, help="Resume although settings or plugins differ.")
@click.option("--overwrite", is_flag=True, help="Delete an existing run of that name first.")
@click.option("--plain", is_flag=True, help="One line a step instead of a live display.")
@click.option("--show-samples", type=click.IntRange(min=0), metavar="N", help="Answers to show.")
@click.option("--faults", type=_PATH, hidden=True, help="Processes to kill, and when: JSON.")
@click.pass_context
def run(context: click.Context, /, **given: Any) -> None:
    """Train with RECIPE: plugin/recipe, a YAML file, a recipe project or a run's folder.

    Settings are key.path=value (or --key.path=value); values are YAML.
    """
    arguments = Arguments(command=context.meta["axisrl.command"], **given)
    context.exit(execute(settled(arguments)))


def execute(arguments: Arguments) -> int:
    """Load, check, then show the plan or hand over to the driver; the exit code."""
    from axisrl.cli.target import Target, choose_target
    from axisrl.config.load import load_run

    target: Target = choose_target(arguments)
    manager = manager_of(arguments, target.plugins)
    loaded = load_run(target.request, manager)
    loaded, folder = target.place(loaded)
    drift = target.check(loaded, folder)
    for line in drift:
        click.echo(f"drift: {line}", err=True)
    for line in loaded.notes:
        click.echo(f"note: {line}", err=True)
    if arguments.dry_run:
        write = not target.resume and not target.occupied(folder)
        _dry_run(loaded, folder, manager, write=write)
        return 0
    overwrite = arguments.overwrite and target.occupied(folder)
    return _start(loaded, folder, manager, arguments, overwrite=overwrite)


def manager_of(arguments: Arguments, before: PluginManifest | None = None) -> PluginManager:
    """The plugins that are there for a command line, and those of the run that it resumes."""
    from axisrl.plugins.manager import PluginManager
    from axisrl.plugins.records import PluginOptions

    options = replace(PluginOptions.from_mapping(os.environ), no_plugin=arguments.no_plugins)
    return PluginManager.discover(local=arguments.plugins, before=before, options=options)


def _dry_run(loaded: LoadedConfig, folder: Path, manager: PluginManager, *, write: bool) -> None:
    from axisrl.cli.plan import print_plan
    from axisrl.config.load import check_models, model_names, write_config
    from axisrl.models import model_at_hand

    print_plan(loaded, folder, manager)
    found = {path: model_at_hand(name) for path, name in model_names(loaded.config).items()}
    check_models(loaded, manager, {path: at for path, at in found.items() if at})
    if write:
        click.echo(f"\nwrote {write_config(loaded, folder)}; nothing was started")
    else:
        click.echo(f"\nnothing was started; the run in {folder} is untouched")


def _start(
    loaded: LoadedConfig,
    folder: Path,
    manager: PluginManager,
    arguments: Arguments,
    *,
    overwrite: bool,
) -> int:
    from axisrl.cli.paths import cache_root

    # Read by OpenMP when torch is imported. Threads that spin while they wait for each other bring
    # a machine that does anything else to a standstill.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from axisrl.runtime import driver
    from axisrl.runtime.faults import read_plan
    from axisrl.runtime.options import RunOptions

    options = RunOptions(
        run_dir=folder,
        cache_dir=cache_root(),
        resume=arguments.resume is not None,
        overwrite=overwrite,
        allow_drift=arguments.allow_drift,
        plain=arguments.plain or not sys.stdout.isatty(),
        show_samples=arguments.show_samples,
        command=arguments.command,
        environ=os.environ,
        faults=read_plan(arguments.faults) if arguments.faults else None,
    )
    result = driver.run(loaded, manager, options)
    click.echo(f"\n{result.outcome}{_progress(loaded.config.mode, result.step)}")
    for line in result.report:
        click.echo(line)
    click.echo(f"run folder:  {folder}")
    click.echo(f"curves:      axisrl view {folder}")
    if result.outcome == "completed":
        return 0
    click.echo(f"go on:       axisrl run --resume {folder}")
    return INTERRUPTED


def _progress(mode: Mode, step: int) -> str:
    """What a run has done that has steps."""
    what = {"train": "updates", "train_offline": "updates", "rollout": "updates' worth of rollouts"}
    return f" after {step} {what[mode]}" if mode in what else ""
