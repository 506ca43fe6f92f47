"""An environment that says back what the policy said. It judges nothing beyond the words it was
told to look for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from axisrl.config.base import Config
from axisrl.types import Action, BuildContext, Message, Observation, StepResult, Task


@dataclass(frozen=True, kw_only=True, slots=True)
class EchoEnvConfig(Config):
    """Options of :class:`EchoEnv`."""

    turns: int = 2
    """Actions until the episode is done."""
    trouble: Literal["", "reset_raises", "step_raises", "reset_hangs", "step_hangs"] = ""
    """What goes wrong, if anything; a hang ends only by cancellation."""
    forbidden: str = "forbidden"
    """An action that contains it ends the episode with ``policy_error``."""


class EchoEnv:
    """Shows ``task.data["question"]``, then answers each action with ``echo: <action>``.

    The reward part ``said`` is 1 for an action that contains ``task.data["answer"]``.
    """

    def __init__(self, config: EchoEnvConfig, context: BuildContext | None = None) -> None:
        self.config = config
        self.actions: list[Action] = []
        self.closed = 0
        """Calls of ``close``."""
        self._answer = ""
        self._done = True

    async def reset(self, task: Task) -> Observation:
        """The question. Raises ``KeyError`` when the task has none, or no answer."""
        await self._trouble("reset")
        question, self._answer = str(task.data["question"]), str(task.data["answer"])
        self._done = False
        return Observation(messages=(Message(role="user", content=question),))

    async def step(self, action: Action) -> StepResult:
        """The echo. Raises ``RuntimeError`` before ``reset`` and after ``done``."""
        if self._done:
            raise RuntimeError("step() needs an episode that has been reset and is not done")
        await self._trouble("step")
        self.actions.append(action)
        broke_rules = self.config.forbidden in action.text
        self._done = broke_rules or len(self.actions) >= self.config.turns
        echo = Message(role="user", content=f"echo: {action.text}")
        return StepResult(
            observation=None if self._done else Observation(messages=(echo,)),
            reward_parts={"said": float(self._answer in action.text)},
            done=self._done,
            policy_error="said what is forbidden" if broke_rules else None,
            info={"turns": len(self.actions)},
        )

    async def close(self) -> None:
        """Count the call and end the episode."""
        self.closed += 1
        self._done = True

    async def _trouble(self, where: str) -> None:
        if self.config.trouble == f"{where}_raises":
            raise OSError(f"scripted failure of {where}")
        if self.config.trouble == f"{where}_hangs":
            await asyncio.Event().wait()
