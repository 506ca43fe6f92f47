"""Verifier: judges a finished rollout. A score says how right it is; a reward decides what that is
worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from axisrl.trace import Trace
from axisrl.types import Message, Outcome, Task, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A finished rollout as verifiers and rewards see it."""

    id: str
    task: Task
    member: int
    outcome: Outcome
    messages: tuple[Message, ...]
    trace: Trace
    turns: int
    turn_parts: tuple[Mapping[str, float], ...] = ()
    """The env's ``reward_parts`` of each turn."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """The env's ``info`` dicts merged, later steps winning."""

    @property
    def env_parts(self) -> dict[str, float]:
        """Sum of the env's ``reward_parts`` over the turns."""
        total: dict[str, float] = {}
        for parts in self.turn_parts:
            for name, value in parts.items():
                total[name] = total.get(name, 0.0) + value
        return total

    @property
    def answer(self) -> str:
        """Text of the policy's last message; empty when it never spoke."""
        said = [message.content for message in self.messages if message.role == "assistant"]
        return said[-1] if said else ""


class Verifier(Protocol):
    """Judges one rollout. Deterministic verifiers say so in their descriptor and are tested for it.

    A missing field in the task raises (``KeyError`` or better); a judgement that cannot be made is
    ``Verdict(score=None, error=...)``. Neither ever becomes score 0. Model text is data: never
    evaluate it. Slow work that does not await belongs in a thread or process of its own
    (``asyncio.to_thread``): a verifier that blocks the loop stops whoever judges in its process,
    time-out included. With ``placement.verifiers`` that is a process for judging alone, which is
    ended and replaced; without, it is the rollout worker.
    """

    async def verify(self, task: Task, rollout: Rollout) -> Verdict:
        """Judge the rollout's answer."""
        ...
