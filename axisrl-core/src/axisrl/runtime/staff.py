"""Staff: rollout workers and the peers they call (engines, and whatever else has replicas), each of
which another one can take the place of.

Every worker is built with the peers that are there and told of every one that comes later. What the
actors are, the crew says (:mod:`axisrl.runtime.crew`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from axisrl.errors import ActorGone
from axisrl.runtime.actors import ActorHandle
from axisrl.runtime.placement import Placement
from axisrl.runtime.supervisor import Post, Supervisor

Peers = Mapping[str, Sequence[ActorHandle]]
"""Kind -> its replicas, by rank."""
Spawn = Callable[[int], Awaitable[ActorHandle]]
Start = Callable[[int, ActorHandle], Awaitable[None]]
Hire = Callable[[int, Peers], Awaitable[ActorHandle]]


class Staff:
    """Belongs to one event loop."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._peers: dict[str, list[Post]] = {}
        self._ways: dict[str, tuple[Spawn, Start]] = {}
        self._hire: Hire
        self.workers: list[Post] = []

    async def place(self, kind: str, count: int, spawn: Spawn, start: Start) -> list[Post]:
        """Start ``count`` processes of a kind; ``start`` is what they need besides."""
        self._ways[kind] = (spawn, start)
        self._peers[kind] = [Post(f"{kind} {rank}", await spawn(rank)) for rank in range(count)]
        return self._peers[kind]

    async def start(self, kind: str) -> None:
        """Make a kind's replicas ready, all at once."""
        _, start = self._ways[kind]
        await asyncio.gather(*(start(at, post.handle) for at, post in enumerate(self._peers[kind])))

    async def employ(self, count: int, hire: Hire) -> None:
        """Start the workers, with all peers that were placed."""
        self._hire = hire
        for rank in range(count):
            self.workers.append(Post(f"rollout {rank}", await hire(rank, self._present())))

    def watched_by(self, supervisor: Supervisor) -> None:
        """Have every actor of the placement watched. These here are replaced, others are not."""
        refills: dict[str, tuple[Post, Callable[[], Awaitable[None]]]] = {}
        for kind, posts in self._peers.items():
            for rank, post in enumerate(posts):
                refills[post.name] = post, partial(self._replace_peer, kind, rank)
        for rank, post in enumerate(self.workers):
            refills[post.name] = post, partial(self._replace_worker, rank)
        for name, handle in self._placement.actors.items():
            post, refill = refills.get(name, (Post(name, handle), None))
            supervisor.watch(post, refill)

    async def _replace_peer(self, kind: str, rank: int) -> None:
        spawn, start = self._ways[kind]
        peer = await spawn(rank)
        await start(rank, peer)
        # In its place first: a worker that starts meanwhile compares what is there in the end.
        self._peers[kind][rank].fill(peer)
        for worker in self.workers:
            await _connect(worker.handle, kind, rank, peer)

    async def _replace_worker(self, rank: int) -> None:
        given = self._present()
        worker = await self._hire(rank, given)
        self.workers[rank].fill(worker)
        for kind, peers in self._present().items():
            for at, peer in enumerate(peers):
                if peer is not given[kind][at]:  # replaced while the worker started
                    await _connect(worker, kind, at, peer)

    def _present(self) -> Peers:
        return {kind: [post.handle for post in posts] for kind, posts in self._peers.items()}


async def _connect(worker: ActorHandle, kind: str, rank: int, peer: ActorHandle) -> None:
    """Tell a worker of a peer. One that is gone needs no telling: its successor is built with what
    is there."""
    with contextlib.suppress(ActorGone):
        await worker.call("connect", kind, rank, peer)
