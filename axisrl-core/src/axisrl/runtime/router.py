"""EngineRouter: several engine replicas that are called like one.

1. Requests of one session go to one replica, where their prefix is cached; a session that is new
   goes to the replica with the least requests under way.
2. Every rollout worker has a router of its own, built from the handles: "least loaded" is by what
   that worker sent.
3. A replica whose actor is gone is left out while there is another, and its sessions move.

It does not send a failed request again: the rollout ends, and its group goes on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from axisrl.errors import EngineFailure, RunFailed
from axisrl.runtime.actors import ActorHandle
from axisrl.types import GenerateRequest, GenerateResult


class EngineRouter:
    """An :class:`axisrl.runtime.actors.ActorHandle` of replicas that serve the same weights.
    Belongs to one event loop."""

    def __init__(self, replicas: Sequence[ActorHandle]) -> None:
        self._replicas = tuple(replicas)
        self._load = [0] * len(self._replicas)
        self._homes: dict[str, int] = {}
        self._gone: set[int] = set()

    @property
    def load(self) -> tuple[int, ...]:
        """Requests under way, by replica."""
        return tuple(self._load)

    @property
    def sessions(self) -> dict[str, int]:
        """Session -> its replica, until it is released."""
        return dict(self._homes)

    async def call(self, method: str, *args: Any) -> Any:
        """``generate`` or ``abort``, as an engine answers them."""
        if method == "generate":
            return await self._generate(*args)
        if method == "abort":
            return await self._abort(*args)
        raise AttributeError(f"{method} is not routed: call the replica itself")

    def release(self, session: str) -> None:
        """Forget a session; to be called when its rollout is over, however it ended."""
        self._homes.pop(session, None)

    async def _generate(self, request: GenerateRequest) -> GenerateResult:
        index = self._home(request.session)
        self._load[index] += 1
        try:
            result: GenerateResult = await self._replicas[index].call("generate", request)
            return result
        except RunFailed as dead:
            self._lose(index)
            others = len(self._replicas) - len(self._gone)
            left = f"{others} of {len(self._replicas)} engines are left"
            raise EngineFailure(f"engine rank {index} is gone, {left}: {dead.message}") from dead
        finally:
            self._load[index] -= 1

    async def _abort(self, session: str | None = None) -> int:
        """A session that is not known runs nothing; without one, every replica ends all."""
        if session is None:
            everywhere = range(len(self._replicas))
            return sum(await asyncio.gather(*(self._end(index, None) for index in everywhere)))
        home = self._homes.get(session)
        return 0 if home is None else await self._end(home, session)

    async def _end(self, index: int, session: str | None) -> int:
        """What ran on a replica that is gone is over."""
        try:
            ended: int = await self._replicas[index].call("abort", session)
        except RunFailed:
            self._lose(index)
            return 0
        return ended

    def _home(self, session: str) -> int:
        if session in self._homes:
            return self._homes[session]
        everywhere = range(len(self._replicas))
        # With none left an actor that was started again in its place is found by asking it.
        there = [index for index in everywhere if index not in self._gone] or everywhere
        housed = Counter(self._homes.values())
        index = min(there, key=lambda at: (self._load[at], housed[at], at))
        if session:
            self._homes[session] = index
        return index

    def _lose(self, index: int) -> None:
        self._gone.add(index)
        self._homes = {session: at for session, at in self._homes.items() if at != index}
