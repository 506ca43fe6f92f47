"""Span: one engine on several machines, called as if it were one actor.

1. A part of it is an actor on each machine. They start, stop and end together; everything else is
   asked of part 0.
2. Whoever watches it watches every part by its name and machine: one that is gone is the loss of
   the whole, as what is left answers nothing.

How parts work together is the engine's business (:class:`axisrl.protocols.SpanningEngine`).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from axisrl.errors import ConfigError
from axisrl.protocols import RolloutEngine, SpanningEngine
from axisrl.runtime.actors import Actor, ActorBoot, ActorHandle
from axisrl.runtime.placement import Placement
from axisrl.runtime.ranks import locate


class _Part:
    """A part's handle; what it raises says which part of what it is, and where."""

    def __init__(self, handle: ActorHandle, name: str) -> None:
        self._handle = handle
        self._name = name

    @property
    def pid(self) -> int:
        return self._handle.pid

    async def call(self, method: str, *args: Any) -> Any:
        try:
            return await self._handle.call(method, *args)
        except Exception as error:
            locate(error, self._name)
            raise

    def kill(self) -> None:
        self._handle.kill()


class SpanHandle:
    """The parts of ``name`` behind one :class:`axisrl.runtime.actors.ActorHandle`; part 0 is the
    one that is called."""

    def __init__(self, name: str, parts: Sequence[ActorHandle]) -> None:
        self.parts = tuple(parts)
        self._names = [f"{name} part {at}" for at in range(len(parts))]

    @property
    def pid(self) -> int:
        """Part 0's process."""
        return self.parts[0].pid

    @property
    def named(self) -> Mapping[str, ActorHandle]:
        """Name and machine -> part."""
        pairs = zip(self._names, self.parts, strict=True)
        return {name: _Part(part, name) for name, part in pairs}

    async def call(self, method: str, *args: Any) -> Any:
        """Run a method of part 0; ``start`` and ``stop`` of all, whose errors name the part."""
        if method == "start":
            await self._start()
        elif method == "stop":
            await self._stop()
        else:
            return await self.parts[0].call(method, *args)

    def kill(self) -> None:
        """End every part."""
        for part in self.parts:
            part.kill()

    async def _start(self) -> None:
        """Where they meet is agreed upon anew: what met there before may still hold the port."""
        address, count = await self.parts[0].call("rendezvous"), len(self.parts)
        parts = self.named.values()
        hosts = await asyncio.gather(
            *(part.call("join", at, count, address) for at, part in enumerate(parts))
        )
        self._names = [f"{name}, on {host}" for name, host in zip(self.named, hosts, strict=True)]
        await asyncio.gather(*(part.call("start") for part in self.named.values()))

    async def _stop(self) -> None:
        """One that does not stop keeps no other from it."""
        stops = (part.call("stop") for part in self.named.values())
        for problem in await asyncio.gather(*stops, return_exceptions=True):
            if problem is not None:
                raise problem


async def spawn_span(
    placement: Placement, actor: type[Actor], boot: ActorBoot, group: str
) -> ActorHandle:
    """Start what serves as one engine: an actor in a place of ``group``, or one for each of
    ``placement.engine_nodes`` machines in places of :func:`group_of_span`."""
    count = boot.config.placement.engine_nodes
    if count == 1:
        return await placement.spawn(actor, boot, group=group)
    parts: list[ActorHandle] = []
    try:
        for at in range(count):
            others = dataclasses.replace(boot, role=f"{boot.role}-{boot.rank}", rank=at)
            place = group_of_span(group, boot.rank)
            parts.append(await placement.spawn(actor, others if at else boot, group=place))
    except BaseException:
        for part in parts:  # their places are for the next try
            part.kill()
        raise
    return SpanHandle(f"{boot.role} {boot.rank}", parts)


def group_of_span(group: str, rank: int) -> str:
    """The resource group of the parts of one engine on several machines."""
    return f"{group}-{rank}"


def spanning_engine(engine: RolloutEngine) -> SpanningEngine:
    """The engine, as one that can be on several machines. Raises ``ConfigError`` when it cannot."""
    if not isinstance(engine, SpanningEngine):
        raise ConfigError(
            "placement.engine_nodes: the engine serves on one machine",
            fix="set placement.engine_nodes to 1, or choose an engine that can be on several",
        )
    return engine
