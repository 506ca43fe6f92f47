"""Env: a task's world. White-box agents live here; the core samples the tokens."""

from __future__ import annotations

from typing import Protocol

from axisrl.types import Action, Observation, StepResult, Task


class Env(Protocol):
    """Single use: one env is built for one rollout and dropped after it.

    1. ``reset`` once, then ``step`` with each action until ``done`` or ``truncated``, then
       ``close``.
    2. ``close`` is idempotent and is also called after an error, a time-out or a cancellation.
    3. A fault of the policy (unparsable call, unknown tool) is an observation or ``policy_error``,
       never an exception;
       an exception means the environment itself broke and the rollout is not trained on.
    """

    async def reset(self, task: Task) -> Observation:
        """The first observation. Raises when the task lacks a field."""
        ...

    async def step(self, action: Action) -> StepResult:
        """Answer one action. Raises ``RuntimeError`` after ``done``."""
        ...

    async def close(self) -> None:
        """Free what the env holds."""
        ...
