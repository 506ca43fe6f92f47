"""What can be wrong with a run before anything of it starts: arguments of SGLang's server.

Where SGLang is not installed nothing is known of them, and nothing is said. Imports neither torch
nor SGLang.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from axisrl.config.schema import RunConfig
from axisrl.errors import EnvironmentProblem
from axisrl.plugins import ConfigProblem
from axisrl_sglang.arguments import package_folder, server_arguments, wrong_arguments


def argument_problems(config: RunConfig) -> Iterator[ConfigProblem]:
    """Arguments that the SGLang installed does not have, or not of that type."""
    given = dict(_given(config))
    if not any(given.values()):
        return
    try:
        known = server_arguments(package_folder())
    except EnvironmentProblem:
        return  # whoever starts the engine says so
    for path, arguments in given.items():
        for name, message, fix in wrong_arguments(arguments, known):
            yield ConfigProblem(path=f"{path}.{name}", message=message, fix=fix)


def _given(config: RunConfig) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The arguments of every engine that is this plugin's, by their keys."""
    teacher = config.teacher.engine if config.teacher else None
    for path, engine in (("engine", config.engine), ("teacher.engine", teacher)):
        if engine is not None and engine.id == "sglang/engine":
            yield f"{path}.sglang", engine.options.get("sglang") or {}
