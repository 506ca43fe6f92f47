"""Router: several replicas of one actor that are called like one, by whoever plays a rollout.

1. Calls of one session go to one replica (an engine keeps its prefix in its cache); a session that
   is new, and a call without one, goes to the replica with the fewest calls under way.
2. Every rollout worker has routers of its own, built from handles: "fewest" is by what that worker
   sent.
3. A replica that is gone is left out, its sessions move, and its calls are made again elsewhere;
   with no other left they wait until the driver connects another one in its place. A call that was
   made twice in vain, or kept waiting by a replica that had to be ended, is then made beside no
   other such call, so that the one that takes replicas down is found, and given up.

It sets no time limit: callers do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from axisrl.errors import ActorGone, ActorStuck
from axisrl.runtime.actors import ActorHandle

ATTEMPTS = 3
"""Replicas that one call may take down."""


class Router:
    """Belongs to one event loop."""

    def __init__(self, kind: str, replicas: Sequence[ActorHandle]) -> None:
        """``kind``: what they are, in errors."""
        self._kind = kind
        self._replicas = list(replicas)
        self._load = [0] * len(self._replicas)
        self._homes: dict[str, int] = {}
        self._gone: set[int] = set()
        self._connected = asyncio.Event()
        self._alone = asyncio.Lock()

    @property
    def load(self) -> tuple[int, ...]:
        """Calls under way, by replica."""
        return tuple(self._load)

    @property
    def sessions(self) -> dict[str, int]:
        """Session -> its replica, until it is released."""
        return dict(self._homes)

    async def call(self, method: str, *args: Any, session: str = "") -> Any:
        """Call a method of the session's replica, whichever that becomes.

        Raises ``ActorGone`` when the call took down ``ATTEMPTS`` replicas, ``ActorStuck`` when one
        gave no answer to it alone; what a replica raises is raised as itself.
        """
        attempt, alone = 0, False
        while True:
            attempt += 1
            alone = alone or attempt == ATTEMPTS
            async with self._alone if alone else contextlib.nullcontext():
                try:
                    return await self._call(method, args, session)
                except ActorStuck:
                    if alone:
                        raise
                    alone = True
                except ActorGone as gone:
                    if attempt == ATTEMPTS:
                        raise ActorGone(
                            f"{self._kind}: a {method} call took down {ATTEMPTS} of them"
                        ) from gone

    async def tell(self, session: str, method: str, *args: Any) -> Any:
        """Call a method of the replica where a session is; None when it is nowhere, or gone."""
        home = self._homes.get(session)
        if home is None:
            return None
        replica = self._replicas[home]
        try:
            return await replica.call(method, *args)
        except ActorGone:
            self._lose(home, replica)
            return None

    def release(self, session: str) -> None:
        """Forget a session; to be called when its rollout is over, however it ended."""
        self._homes.pop(session, None)

    def connect(self, rank: int, replica: ActorHandle) -> None:
        """Put another replica in the place of one that is gone."""
        self._replicas[rank] = replica
        self._gone.discard(rank)
        self._connected.set()
        self._connected = asyncio.Event()

    async def _call(self, method: str, args: Sequence[Any], session: str) -> Any:
        index = await self._home(session)
        replica = self._replicas[index]
        self._load[index] += 1
        try:
            return await replica.call(method, *args)
        except ActorGone:
            self._lose(index, replica)
            raise
        finally:
            self._load[index] -= 1

    async def _home(self, session: str) -> int:
        while session not in self._homes:
            there = [at for at in range(len(self._replicas)) if at not in self._gone]
            if not there:
                await self._connected.wait()
                continue
            housed = Counter(self._homes.values())
            index = min(there, key=lambda at: (self._load[at], housed[at], at))
            if not session:
                return index
            self._homes[session] = index
        return self._homes[session]

    def _lose(self, index: int, replica: ActorHandle) -> None:
        if self._replicas[index] is not replica:
            return  # another one is there already
        self._gone.add(index)
        self._homes = {session: at for session, at in self._homes.items() if at != index}
