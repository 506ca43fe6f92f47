"""What is wrong with a configuration, collected so that one run reports all of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from axisrl.config.overrides import origin_of
from axisrl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. ``path`` is the dotted key it is about; empty for the whole."""

    path: str
    message: str
    fix: str = ""


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that ``word`` is probably a misspelling of, or an empty string."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else ""


def raise_problems(problems: Sequence[Problem], origins: Mapping[str, str]) -> None:
    """One ``ConfigError`` for all of them; returns when there are none."""
    if not problems:
        return
    lines = []
    for problem in problems:
        origin = _origin(problem.path, origins)
        lines.append(f"{problem.message} (from {origin})" if origin else problem.message)
    found = [problem.fix or _keys_to_change(problem, origins) for problem in problems]
    fixes = list(dict.fromkeys(fix for fix in found if fix))
    if len(lines) == 1:
        raise ConfigError(lines[0], fix="; ".join(fixes))
    listed = "\n".join(f"  - {line}" for line in lines)
    raise ConfigError(
        f"{len(lines)} problems in the configuration:\n{listed}", fix="\n       ".join(fixes)
    )


def _origin(path: str, origins: Mapping[str, str]) -> str:
    """Where a key was set; for a section, where all that is in it was."""
    if not path:
        return ""
    inside = {origin for key, origin in origins.items() if key.startswith(f"{path}.")}
    return origin_of(origins, path) or (inside.pop() if len(inside) == 1 else "")


def _keys_to_change(problem: Problem, origins: Mapping[str, str]) -> str:
    """The keys a finding names, whole or below its own path, and where each was set."""
    section = f"{problem.path}."
    named = [
        key
        for key in origins
        if "." in key
        and (
            f"{key} " in f"{problem.message} "
            or (key.startswith(section) and f": {key.removeprefix(section)} " in problem.message)
        )
    ]
    return "change " + " or ".join(f"{key} (from {origins[key]})" for key in named) if named else ""
