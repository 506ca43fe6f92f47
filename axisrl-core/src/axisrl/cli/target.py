"""Which folder a run uses, whether it may, and what has to be true of it first.

A new run never touches an existing one: the user chooses between ``--resume``, ``--overwrite`` and
another name. A folder that holds only a dry run's ``config.yaml`` is no run yet.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from axisrl.cli.arguments import Arguments, checked_name
from axisrl.cli.paths import output_root
from axisrl.config.load import RunRequest, stored_tree
from axisrl.config.overrides import differences
from axisrl.config.recipe import CONFIG_FILE
from axisrl.errors import CheckpointError, ConfigError, PluginError, UsageError
from axisrl.plugins.manifest import PluginManifest
from axisrl.runfolder import RunFolder

if TYPE_CHECKING:
    from axisrl.config.load import LoadedConfig


@dataclass(frozen=True, slots=True)
class Target:
    """What to load and where to run it. ``folder`` is None while only the configuration's ``name``
    can tell."""

    arguments: Arguments
    request: RunRequest
    folder: Path | None

    @property
    def resume(self) -> bool:
        """Whether this goes on with a run."""
        return self.arguments.resume is not None

    @property
    def plugins(self) -> PluginManifest | None:
        """What was active in the run that is resumed. Raises ``CheckpointError`` when it does not
        say."""
        if not (self.resume and self.folder and is_run(self.folder)):
            return None
        try:
            return PluginManifest.from_dict(RunFolder(self.folder).manifest.get("plugins", {}))
        except PluginError as problem:
            raise CheckpointError(
                f"{self.folder / 'manifest.json'} does not tell the run's plugins: "
                f"{problem.message}",
                fix="bring that file back from a copy, or start the run anew with --overwrite",
            ) from problem

    def place(self, loaded: LoadedConfig) -> tuple[LoadedConfig, Path]:
        """The run's folder, and the configuration with the run's name in it."""
        folder, name = self.folder, loaded.config.name
        if folder is None and self.resume and not name:
            raise UsageError(
                "--resume: which run?", fix="axisrl run --resume RUN; axisrl runs lists them"
            )
        origin = loaded.origins["name"]
        if not name:
            name = folder.name if folder is not None else _made_name(loaded.recipe)
            origin = "run folder"
        if folder is None:
            folder = output_root() / checked_name(name)
        config = replace(loaded.config, name=name)
        tree, origins = {**loaded.tree, "name": name}, {**loaded.origins, "name": origin}
        return replace(loaded, config=config, tree=tree, origins=origins), folder

    def occupied(self, folder: Path) -> bool:
        """Whether the folder holds more than a dry run's configuration."""
        return folder.exists() and (
            not folder.is_dir() or any(entry.name != CONFIG_FILE for entry in folder.iterdir())
        )

    def check(self, loaded: LoadedConfig, folder: Path) -> Sequence[str]:
        """Raise when the folder does not allow this run; else what differs from the run that is
        resumed (nothing without ``--allow-drift``)."""
        if not self.resume:
            if self.occupied(folder):
                self._check_overwrite(folder)
            return ()
        require_checkpoint(folder)
        lines = differences(stored_tree(folder), loaded.tree)
        if lines and not self.arguments.allow_drift:
            listed = "".join(f"\n  {line}" for line in lines)
            raise ConfigError(
                f"the run {folder} was started with other settings:{listed}",
                fix="leave the settings out, or go on with them: add --allow-drift",
            )
        return lines

    def _check_overwrite(self, folder: Path) -> None:
        if not is_run(folder):
            raise UsageError(
                f"{folder} holds something that is no run (no manifest.json beside its "
                f"{CONFIG_FILE})",
                fix="choose another --run-dir or --name",
            )
        found = RunFolder(folder)
        if not self.arguments.overwrite:
            choices = [
                f"delete it, run anew:  {shlex.join([*self.arguments.command, '--overwrite'])}"
            ]
            if found.checkpoints:
                choices.insert(0, f"go on with it:        {_resuming(folder)}")
            raise UsageError(
                f"the run {folder} exists ({found.state})",
                fix="\n  ".join(["choose another --name, or:", *choices]),
            )
        if found.state == "running":
            raise UsageError(
                f"the run {folder} is running (process {found.manifest.get('pid')})",
                fix="end that process first, or choose another --name",
            )


def _resuming(folder: Path) -> str:
    return f"axisrl run --resume {shlex.quote(str(folder))}"


def choose_target(arguments: Arguments) -> Target:
    """Read RECIPE, ``--resume``, ``--run-dir`` and ``--name`` together.

    Raises ``UsageError`` when no recipe is given and no run to take it from.
    """
    recipe, folder = arguments.recipe, arguments.run_dir
    if arguments.resume:
        folder = _run_named(arguments.resume)
    elif recipe and arguments.resume is not None and is_run(Path(recipe).expanduser()):
        folder = Path(recipe).expanduser()
    elif folder is None and arguments.name is not None:
        folder = output_root() / checked_name(arguments.name)
    if not recipe:
        recipe = _stored_recipe(arguments, folder)
    if folder is not None:
        folder = folder.expanduser().absolute()
    request = RunRequest(
        recipe=recipe,
        configs=arguments.configs,
        overrides=arguments.overrides,
        smoke=arguments.smoke,
        loggers=arguments.loggers,
    )
    return Target(arguments, request, folder)


def is_run(folder: Path) -> bool:
    """Whether the driver has begun a run in that folder."""
    return (folder / CONFIG_FILE).is_file() and (folder / "manifest.json").is_file()


def require_checkpoint(folder: Path) -> None:
    """Raise ``CheckpointError`` unless the run has a checkpoint that was written to its end."""
    if not is_run(folder):
        raise UsageError(
            f"there is no run in {folder}", fix="axisrl runs lists them; start it without --resume"
        )
    if RunFolder(folder).checkpoints:
        return
    steps = sorted((folder / "checkpoints").glob("step-*"))
    unfinished = f" (unfinished: {', '.join(step.name for step in steps)})" if steps else ""
    raise CheckpointError(
        f"the run {folder} has no checkpoint to go on from{unfinished}",
        fix="start it anew: the command it was started with, and --overwrite",
    )


def _run_named(run: str) -> Path:
    given = Path(run).expanduser()
    return given if is_run(given) or given.is_absolute() else output_root() / run


def _stored_recipe(arguments: Arguments, folder: Path | None) -> str:
    if arguments.resume is None:
        raise UsageError(
            "no recipe is given",
            fix="axisrl run RECIPE; axisrl plugins list --kind recipe lists them",
        )
    if folder is None:
        raise UsageError(
            "--resume: which run?", fix="axisrl run --resume RUN; axisrl runs lists them"
        )
    require_checkpoint(folder)
    return str(folder.expanduser().absolute())


def _made_name(recipe: str) -> str:
    words = "".join(c if c.isalnum() else "-" for c in recipe.removesuffix(".yaml")).strip("-")
    return f"{words[-60:].strip('-') or 'run'}-{time.strftime('%Y%m%d-%H%M%S')}"
