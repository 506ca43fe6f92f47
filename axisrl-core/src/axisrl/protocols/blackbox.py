"""BlackboxAdaptor: runs somebody else's agent; the core owns the OpenAI-compatible proxy and
captures every call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from axisrl.types import Outcome, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptorContext:
    """Where an adaptor may work and how long."""

    work_dir: Path
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySession:
    """The endpoint an agent must talk to; the path names the session, so concurrent rollouts never
    mix."""

    id: str
    base_url: str
    api_key: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessOutcome:
    """How the agent's own process ended."""

    outcome: Outcome
    detail: str = ""
    artefacts: Mapping[str, str] = field(default_factory=dict)


class BlackboxAdaptor(Protocol):
    """A crash of the agent is an outcome, not an exception; ``stop`` is idempotent and leaves no
    process behind."""

    async def start(self, context: AdaptorContext) -> None:
        """Prepare what several runs share."""
        ...

    async def run(self, task: Task, session: ProxySession) -> HarnessOutcome:
        """Let the agent work on one task against the session's endpoint."""
        ...

    async def stop(self) -> None:
        """Undo ``start``."""
        ...
