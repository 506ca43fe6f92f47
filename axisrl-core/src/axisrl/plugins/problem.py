"""ConfigProblem: what the hook ``axisrl_config_resolved`` answers. Imports nothing of axisrl."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProblem:
    """What a plugin finds wrong with a resolved config. ``path`` is the dotted key."""

    path: str
    message: str
    fix: str = ""
