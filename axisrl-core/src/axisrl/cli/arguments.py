"""The command line of ``axisrl run``, sorted into a recipe, settings and options."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from axisrl.errors import UsageError

_SETTING = re.compile(r"(--)?[A-Za-z_][\w.\-]*=", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The command line of ``axisrl run``, as given."""

    words: tuple[str, ...]
    """RECIPE and settings, in order."""
    configs: tuple[str, ...]
    """YAML files and presets, in order."""
    plugins: tuple[str, ...]
    no_plugins: tuple[str, ...]
    loggers: tuple[str, ...] = ()
    run_dir: Path | None = None
    name: str | None = None
    seed: int | None = None
    resume: str | None = None
    """None: a new run. Empty: ``--resume`` alone. Else the run to go on with."""
    smoke: bool = False
    dry_run: bool = False
    plain: bool = False
    overwrite: bool = False
    allow_drift: bool = False
    show_samples: int | None = None
    faults: Path | None = None
    """A plan of faults (:mod:`axisrl.runtime.faults`)."""
    command: tuple[str, ...] = ()

    @property
    def recipe(self) -> str:
        """The word that is no setting; empty when there is none."""
        found = [word for word in self.words if not _SETTING.match(word)]
        if len(found) > 1:
            raise UsageError(
                f"two recipes are given: {found[0]} and {found[1]}",
                fix="give one; settings are key.path=value, without spaces around `=`",
            )
        return found[0] if found else ""

    @property
    def overrides(self) -> tuple[str, ...]:
        """Settings in order, with ``--name`` and ``--seed`` among them."""
        given = [word for word in self.words if _SETTING.match(word)]
        if self.name is not None:
            given.append(f"name={json.dumps(checked_name(self.name))}")
        if self.seed is not None:
            given.append(f"seed={self.seed}")
        return tuple(given)


def refuse_unknown(
    words: Sequence[str], options: Sequence[str], command: str = "axisrl run"
) -> None:
    """Raise ``UsageError`` for a word that looks like an option and is neither one nor a setting.

    ``options`` are the known ones, for the nearest name.
    """
    for word in words:
        if word.startswith("-") and not _SETTING.match(word):
            near = get_close_matches(word, options, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            fix = f"a setting is {word}=value; {command} --help lists the options"
            if word == "--debug":
                fix = f"it goes before the command: {command.replace(' ', ' --debug ')}"
            raise UsageError(f"{command} has no option {word}{hint}", fix=fix)


def settled(arguments: Arguments) -> Arguments:
    """``--resume key=value`` is ``--resume`` and a setting: click takes the next word as its
    value."""
    if arguments.resume and _SETTING.match(arguments.resume):
        arguments = replace(arguments, resume="", words=(arguments.resume, *arguments.words))
    if arguments.resume is None and arguments.allow_drift:
        raise UsageError("--allow-drift goes with --resume only", fix="leave it out")
    if arguments.resume is not None and arguments.overwrite:
        raise UsageError(
            "--resume and --overwrite exclude each other",
            fix="--resume goes on with the run, --overwrite deletes it",
        )
    return arguments


def checked_name(name: str) -> str:
    """``name`` when it can be a folder's name. Raises ``UsageError``."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--name {name!r} cannot be a folder's name",
            fix="use letters, digits, dots, dashes and underscores, a letter or digit first",
        )
    return name
