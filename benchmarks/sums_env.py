"""The environment of ``sglang_rollout.py``, as a plugin of one file: it asks for a sum, and after
each answer for another, so many times.

It judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from axisrl.config.base import NoConfig
from axisrl.plugins import EnvComponent, hookimpl
from axisrl.types import Action, BuildContext, Message, Observation, StepResult, Task


class Sums:
    """Reads ``question`` and ``turns`` from the task."""

    def __init__(self, config: NoConfig, context: BuildContext) -> None:
        self._left = 0
        self._question = ""

    async def reset(self, task: Task) -> Observation:
        """The first sum."""
        self._question, self._left = str(task.data["question"]), int(task.data["turns"])
        system = Message(role="system", content="Solve the sum.")
        return Observation(messages=(system, Message(role="user", content=self._question)))

    async def step(self, action: Action) -> StepResult:
        """Another, or the end."""
        self._left -= 1
        if not self._left:
            return StepResult(done=True)
        again = Message(role="user", content=self._question)
        return StepResult(observation=Observation(messages=(again,)))

    async def close(self) -> None:
        """Nothing to free."""


@hookimpl
def axisrl_envs() -> Iterable[EnvComponent]:
    """One environment."""
    return [EnvComponent(name="sums", target=f"{__name__}:Sums", summary="Asks for sums")]
