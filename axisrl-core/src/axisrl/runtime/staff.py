"""Staff: rollout workers and the peers they call (engines, judges, services), each of which another
one can take the place of.

Whoever calls others is built with those that are there and told of every one that comes later. What
the actors are, the crew says (:mod:`axisrl.runtime.crew`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from axisrl.errors import ActorGone
from axisrl.runtime.actors import ActorHandle
from axisrl.runtime.placement import Placement
from axisrl.runtime.supervisor import Post, Supervisor

Peers = Mapping[str, Sequence[ActorHandle]]
"""Kind -> its replicas, by rank."""
Start = Callable[[int, ActorHandle], Awaitable[None]]
Hire = Callable[[int, Peers], Awaitable[ActorHandle]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How a kind of peers comes to be."""

    spawn: Hire
    """Starts the process of a rank, with the peers that it calls."""
    start: Start
    """Makes it ready to be called."""
    calls: tuple[str, ...] = ()
    """Kinds that it calls itself; they are placed before."""
    pooled: bool = False
    """Its callers see to it that it answers (:class:`axisrl.runtime.supervisor.Post`)."""


class Staff:
    """Belongs to one event loop."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._peers: dict[str, list[Post]] = {}
        self._kinds: dict[str, Kind] = {}
        self._hire: Hire
        self.workers: list[Post] = []

    async def place(self, name: str, count: int, kind: Kind) -> list[Post]:
        """Start ``count`` processes of a kind."""
        given = self._present(kind.calls)
        handles = [await kind.spawn(rank, given) for rank in range(count)]
        self._kinds[name] = kind
        self._peers[name] = [
            Post(f"{name} {rank}", handle, pooled=kind.pooled)
            for rank, handle in enumerate(handles)
        ]
        return self._peers[name]

    async def start(self, name: str) -> None:
        """Make a kind's replicas ready, all at once."""
        start = self._kinds[name].start
        await asyncio.gather(*(start(at, post.handle) for at, post in enumerate(self._peers[name])))

    async def employ(self, count: int, hire: Hire) -> None:
        """Start the workers, with all peers that were placed."""
        self._hire = hire
        for rank in range(count):
            self.workers.append(
                Post(f"rollout {rank}", await hire(rank, self._present(self._peers)))
            )

    def watched_by(self, supervisor: Supervisor) -> None:
        """Have every actor of the placement watched. These here are replaced, others are not."""
        refills: dict[str, tuple[Post, Callable[[], Awaitable[None]]]] = {}
        for kind, posts in self._peers.items():
            for rank, post in enumerate(posts):
                refills[post.name] = post, partial(self._replace_peer, kind, rank)
        for rank, post in enumerate(self.workers):
            refills[post.name] = post, partial(self._replace_worker, rank)
        for name, handle in self._placement.actors.items():
            if name in refills:
                supervisor.watch(*refills[name])
            elif not any(post.holds(handle) for post, _ in refills.values()):
                supervisor.watch(Post(name, handle))

    async def _replace_peer(self, name: str, rank: int) -> None:
        kind = self._kinds[name]
        given = self._present(kind.calls)
        peer = await kind.spawn(rank, given)
        try:
            await kind.start(rank, peer)
        except BaseException:
            peer.kill()  # its place is for the next one
            raise
        # In its place first: a caller that starts meanwhile compares what is there in the end.
        self._peers[name][rank].fill(peer)
        await self._catch_up(peer, given)
        for caller in self._callers(name):
            await _connect(caller, name, rank, peer)

    async def _replace_worker(self, rank: int) -> None:
        given = self._present(self._peers)
        worker = await self._hire(rank, given)
        self.workers[rank].fill(worker)
        await self._catch_up(worker, given)

    async def _catch_up(self, caller: ActorHandle, given: Peers) -> None:
        """Tell a caller of the peers that were replaced while it started."""
        for name, peers in self._present(given).items():
            for rank, peer in enumerate(peers):
                if peer is not given[name][rank]:
                    await _connect(caller, name, rank, peer)

    def _callers(self, name: str) -> list[ActorHandle]:
        """Who calls a kind at present."""
        posts = [*self.workers]
        for other, kind in self._kinds.items():
            posts += self._peers[other] if name in kind.calls else []
        return [post.handle for post in posts]

    def _present(self, names: Iterable[str]) -> Peers:
        return {name: [post.handle for post in self._peers[name]] for name in names}


async def _connect(caller: ActorHandle, kind: str, rank: int, peer: ActorHandle) -> None:
    """Tell a caller of a peer. One that is gone needs no telling: its successor is built with what
    is there."""
    with contextlib.suppress(ActorGone):
        await caller.call("connect", kind, rank, peer)
