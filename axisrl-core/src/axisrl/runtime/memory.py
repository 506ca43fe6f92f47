"""MemoryTurns: who has the memory of GPUs that engines and trainers share (``placement.colocate``).

=================== ============================= ==========================================
turn                engines                       models
=================== ============================= ==========================================
rollout, evaluation weights and KV cache          nothing
scoring, learning   nothing                       of the one at work its weights, for a step
                                                  its optimizer too
weight sync         weights                       the policy's weights
=================== ============================= ==========================================

What goes is gone before what comes is asked, so the peak is that of one turn. Models that work at
once elsewhere work one after another here. Without ``colocate`` nothing moves and nobody is asked.

An engine that is lost in its turn is replaced; in another there is no room for a new one, and the
run goes back to its checkpoint.

It does not know how memory moves: that is each component's (:mod:`axisrl.protocols.memory`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from typing import Literal

from axisrl.errors import ActorGone, ConfigError, Irreplaceable
from axisrl.protocols import (
    EnginePart,
    OffloadingEngine,
    OffloadingTrainer,
    RolloutEngine,
    TrainerBackend,
    TrainerPart,
)
from axisrl.runtime.actors import ActorHandle
from axisrl.runtime.spans import SpanLog
from axisrl.runtime.supervisor import Post

ENGINE_PARTS: tuple[EnginePart, ...] = ("weights", "kv_cache")
TRAINER_PARTS: tuple[TrainerPart, ...] = ("weights", "optimizer")
_WEIGHTS = frozenset({"weights"})
_NOTHING = frozenset[str]()
_OPTIMIZER = frozenset({"optimizer"})


class _Tenant:
    """An actor, and which of its parts are where."""

    def __init__(self, actor: ActorHandle, parts: Collection[str]) -> None:
        self.parts = frozenset(parts)
        self._actor = actor
        self._known = dict.fromkeys(parts, True)
        """Part -> whether it is on the GPU; none of a part whose move was broken off."""

    def due(self, parts: AbstractSet[str], on: bool) -> AbstractSet[str]:
        """Those of ``parts`` that have to move to be on the GPU, or off it."""
        return {part for part in parts if self._known.get(part) is not on}

    @property
    def away(self) -> bool:
        """Whether nothing of it is on the GPU."""
        return self._known == dict.fromkeys(self.parts, False)

    async def move(self, parts: AbstractSet[str], on: bool) -> None:
        for part in parts:
            self._known.pop(part, None)
        await self._call("reload" if on else "offload", sorted(parts))
        self._known |= dict.fromkeys(parts, on)

    async def _call(self, method: str, parts: Collection[str]) -> None:
        """Whoever is in its place. One that took the place of another has all on the GPU."""
        while isinstance(self._actor, Post):
            holder = self._actor.handle
            try:
                await holder.call(method, parts)
                return
            except ActorGone:
                await self._actor.successor(holder)
        await self._actor.call(method, parts)


class MemoryTurns:
    """Moves what the actors of one run hold. Each is added once, right after it started."""

    def __init__(self, colocate: bool, spans: SpanLog) -> None:
        """Without ``colocate`` it does nothing."""
        self._colocate = colocate
        self._spans = spans
        self._tenants: dict[str, _Tenant] = {}
        self._engines: list[str] = []
        self._lock = asyncio.Lock()

    async def add_model(
        self, name: str, actor: ActorHandle, parts: Collection[str] = TRAINER_PARTS
    ) -> None:
        """Know a model, and put it away so that the next one can start."""
        if self._colocate:
            self._tenants[name] = _Tenant(actor, parts)
            await self._settle({})

    async def add_engines(self, engines: Mapping[str, ActorHandle]) -> None:
        """Know the engines. They keep what they hold: the first turn is theirs."""
        if self._colocate:
            self._engines += engines
            self._tenants |= {name: _Tenant(actor, ENGINE_PARTS) for name, actor in engines.items()}
            # Nothing has to move: one that was started without the means for it says so now.
            await asyncio.gather(*(actor.call("reload", []) for actor in engines.values()))

    def check_room(self, engine: str) -> None:
        """Raises ``Irreplaceable`` while models hold what an engine that starts would need."""
        models = [name for name in self._tenants if name not in self._engines]
        if not all(self._tenants[name].away for name in models):
            raise Irreplaceable(
                f"{engine} is gone, and the GPUs it would start on are with the trainers"
            )

    async def play(self) -> None:
        """From here on engines serve."""
        await self._settle({name: frozenset(ENGINE_PARTS) for name in self._engines})

    async def sync(self) -> None:
        """From here on the policy can offer its weights and engines can take them."""
        await self._settle(dict.fromkeys(["policy", *self._engines], _WEIGHTS))

    @asynccontextmanager
    async def turn(self, *models: str, optimizer: bool = False) -> AsyncIterator[None]:
        """These models may work in the block and no other; with their ``optimizer`` they may make
        a step."""
        if not self._colocate:
            yield
            return
        without = _NOTHING if optimizer else _OPTIMIZER
        async with self._lock:
            await self._settle({name: self._tenants[name].parts - without for name in models})
            yield

    async def _settle(self, wanted: Mapping[str, frozenset[str]]) -> None:
        """Bring what is ``wanted`` onto the GPUs, once everything else is off them."""
        if not self._colocate:
            return
        others = {name: t.parts - wanted.get(name, _NOTHING) for name, t in self._tenants.items()}
        await self._move("offload", others)
        await self._move("reload", wanted)

    async def _move(
        self, what: Literal["offload", "reload"], parts: Mapping[str, frozenset[str]]
    ) -> None:
        on = what == "reload"
        due = {name: self._tenants[name].due(each, on) for name, each in parts.items()}
        if any(due.values()):
            with self._spans.span(what):
                moves = (self._tenants[name].move(each, on) for name, each in due.items() if each)
                await asyncio.gather(*moves)


def offloading_engine(engine: RolloutEngine, key: str) -> OffloadingEngine:
    """The engine under ``key`` of the configuration. Raises ``ConfigError`` when it hands nothing
    over."""
    if not isinstance(engine, OffloadingEngine):
        raise _keeps_all(key)
    return engine


def offloading_trainer(trainer: TrainerBackend, role: str) -> OffloadingTrainer:
    """The backend of a role. Raises ``ConfigError`` when it hands nothing over."""
    if not isinstance(trainer, OffloadingTrainer):
        raise _keeps_all(f"the backend of the {role}")
    return trainer


def _keeps_all(what: str) -> ConfigError:
    return ConfigError(
        f"placement.colocate: {what} cannot hand its memory over",
        fix="set placement.colocate=false, or choose a component that can",
    )
