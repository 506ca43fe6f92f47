"""Ranks: several trainer processes of one model, called as if they were one actor.

1. Every rank is an actor of its own, and every call goes to all of them at once: a rank that were
   left out would keep the others waiting in their next step.
2. Rank 0 speaks for all. What only it has to do (offer weights, save) the others are not asked for,
   unless they divide the model or its optimizer's state among themselves; scores, of which each
   rank computed its share, are put together.
3. The error that is raised names its rank. A rank that only lost the others (``RankLost``) is heard
   last, and nobody is waited for longer than ``grace_s`` once one has failed.

How gradients travel is the trainer backend's business.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import random
import socket
from collections.abc import Sequence
from typing import Any

from axisrl.errors import AxisrlError, RankLost
from axisrl.runtime.actors import Actor, ActorBoot, ActorHandle
from axisrl.runtime.placement import Placement

_RANK_0 = frozenset({"needs", "rendezvous"})
_WHOLE = frozenset({"save", "weight_update"})
"""Needs all of the model."""
_SHARED = frozenset({"score"})
_GRACE_S = 10.0
_PORTS = (20_000, 32_000)
_RANDOM = random.SystemRandom()
_NO_HOST = ("192.0.2.1", 9)
"""An address for documentation (RFC 5737): nobody is there, and nothing is sent."""


class RankedHandle:
    """The ranks of ``name`` behind one :class:`axisrl.runtime.actors.ActorHandle`."""

    def __init__(
        self, name: str, ranks: Sequence[ActorHandle], *, grace_s: float = _GRACE_S
    ) -> None:
        self._name = name
        self._ranks = ranks
        self._grace_s = grace_s
        self._one_does = _RANK_0 | _WHOLE

    async def join(self) -> None:
        """Let the ranks meet, and learn whether each has the whole model and its state."""
        shares = await self._answers(self._ranks, "join", await self.call("rendezvous"))
        if not all(share.whole for share in shares):
            self._one_does = _RANK_0
        elif any(share.divides_state for share in shares):
            self._one_does = _RANK_0 | {"weight_update"}

    @property
    def pid(self) -> int:
        """Rank 0's process."""
        return self._ranks[0].pid

    async def call(self, method: str, *args: Any) -> Any:
        """Run a method on every rank and return rank 0's answer."""
        asked = self._ranks[:1] if method in self._one_does else self._ranks
        answers = await self._answers(asked, method, *args)
        if method in _SHARED:
            return {key: value for answer in answers for key, value in answer.items()}
        return answers[0]

    async def _answers(self, asked: Sequence[ActorHandle], method: str, *args: Any) -> list[Any]:
        calls = [asyncio.ensure_future(rank.call(method, *args)) for rank in asked]
        try:
            _, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
            if waiting:
                await asyncio.wait(waiting, timeout=self._grace_s)
            self._raise_first(calls)
        finally:
            for call in calls:
                call.cancel()
        return [call.result() for call in calls]

    def kill(self) -> None:
        """End every rank."""
        for rank in self._ranks:
            rank.kill()

    def _raise_first(self, calls: Sequence[asyncio.Future[Any]]) -> None:
        over = [(rank, call) for rank, call in enumerate(calls) if call.done()]
        found = [(rank, error) for rank, call in over if (error := call.exception())]
        if not found:
            return
        rank, error = min(found, key=lambda each: isinstance(each[1], RankLost))
        locate(error, f"{self._name} rank {rank}")
        raise error


def locate(error: BaseException, where: str) -> None:
    """Let the error say who raised it."""
    if isinstance(error, AxisrlError):
        error.message = f"{where}: {error.message}"
        error.args = (error.message,)
    else:
        error.add_note(f"raised by {where}")


async def spawn_ranks(
    placement: Placement, actor: type[Actor], boot: ActorBoot, group: str
) -> ActorHandle:
    """Start every rank of a learning model in places of ``group``; they know where they will
    meet."""
    boots = [
        dataclasses.replace(boot, rank=at) for at in range(boot.config.placement.trainer_ranks)
    ]
    ranks = [await placement.spawn(actor, each, group=group) for each in boots]
    if len(ranks) == 1:
        return ranks[0]
    together = RankedHandle(boot.role, ranks)
    await together.join()
    return together


def this_host() -> str:
    """This machine as others reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_NO_HOST)
            host: str = probe.getsockname()[0]
        except OSError:  # no route to anywhere: all that will ask is on this machine
            host = "127.0.0.1"
    return host


def free_address() -> str:
    """``host:port``: :func:`this_host`, and a port that is free now. It is none that a system gives
    to outgoing connections (Linux: from 32768 on), so that nobody takes it meanwhile by chance."""
    host = this_host()
    while True:
        port = _RANDOM.randrange(*_PORTS)
        with socket.socket() as listener:
            try:
                listener.bind((host, port))
            except OSError as problem:
                if problem.errno != errno.EADDRINUSE:
                    raise
                continue
        return f"{host}:{port}"
