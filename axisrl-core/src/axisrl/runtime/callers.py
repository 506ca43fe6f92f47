"""Callers: actors that call others which have replicas, and give their components the run's
services.

A rollout worker is one, and so is what judges for it. What they do is not known here.
"""

from __future__ import annotations

from axisrl.protocols import HandleStore
from axisrl.runtime.actors import Actor, ActorBoot, ActorHandle
from axisrl.runtime.calls import PromptHandle
from axisrl.runtime.router import Router
from axisrl.runtime.services import RoutedService, group_of
from axisrl.runtime.staff import Peers


class Caller(Actor):
    """Holds a router for every kind of peer; named services are among them."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None, peers: Peers) -> None:
        """``peers``: kind -> its replicas, by rank."""
        super().__init__(boot, store)
        self.routers = {
            kind: Router(kind, [self._prompt(replica) for replica in replicas])
            for kind, replicas in peers.items()
        }
        for name in boot.config.services:
            self.services[name] = RoutedService(name, self.routers[group_of(name)])

    async def connect(self, kind: str, rank: int, peer: ActorHandle) -> None:
        """Call this replica of a kind from here on: the one before is gone."""
        self.routers[kind].connect(rank, self._prompt(peer))

    def _prompt(self, peer: ActorHandle) -> ActorHandle:
        """In this process nobody can be ended alone."""
        return PromptHandle(peer) if self.boot.config.placement.kind == "ray" else peer
