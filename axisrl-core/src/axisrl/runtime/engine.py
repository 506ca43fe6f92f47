"""EngineActor: a rollout engine where the placement puts it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

from axisrl.config.schema import needed
from axisrl.protocols import EnginePart, HandleStore, RolloutEngine, WatchedEngine
from axisrl.runtime.actors import Actor, ActorBoot
from axisrl.runtime.busy import Activity, BusyClock
from axisrl.runtime.gate import Gate
from axisrl.runtime.memory import offloading_engine
from axisrl.runtime.ranks import free_address, this_host
from axisrl.runtime.routing import lifetime_s, routing_engine
from axisrl.runtime.span import spanning_engine
from axisrl.types import GenerateRequest, GenerateResult, WeightAck, WeightUpdate

_POLL_S = 0.001


class EngineActor(Actor):
    """Passes calls on to the engine component, and lets none in while weights change or memory is
    away."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        super().__init__(boot, store)
        use = needed(boot.config.engine, "engine")
        self._engine: RolloutEngine = self.build("engine", use, "engine")
        if boot.config.rollout.routing:
            lifetime = lifetime_s(boot.config.rollout)
            routing_engine(self._engine).capture_routing(partial(self.put, ttl_s=lifetime))
        self._waits = boot.config.schedule.kind == "async" and boot.config.schedule.partial == "off"
        self._gate = Gate()
        self._away: set[EnginePart] = set()
        self._clock = BusyClock("generate")
        self._tokens = self._passes = 0
        self.started()

    async def rendezvous(self) -> str:
        """Where the parts of an engine on several machines can meet: on this one."""
        return free_address()

    async def join(self, part: int, parts: int, address: str) -> str:
        """Be a part of an engine on several machines; which one this is."""
        spanning_engine(self._engine).join(part, parts, address)
        return this_host()

    async def start(self) -> None:
        """Load the model."""
        await self._engine.start(self.boot.model)

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample one model call, once no weight update is under way and all memory is there."""
        async with self._gate.inside():
            with self._clock.busy():
                result = await self._engine.generate(request)
        if result.passes:
            self._tokens += len(result.ids)
            self._passes += result.passes
        return result

    async def abort(self, session: str | None = None) -> int:
        """End the running requests of a session, or all."""
        return await self._engine.abort(session)

    async def update_weights(self, update: WeightUpdate) -> WeightAck:
        """Load new weights while no model call runs.

        Calls that run are waited for where generation goes on beside learning and ``partial`` is
        off; otherwise they are ended (in a synchronous run only those whose rollout ran out of time
        are left, and they would hold the update up).
        """
        try:
            await self._emptied()
            with self._clock.noted("update weights"):
                return await self._engine.update_weights(update)
        finally:
            self._let_in()

    async def offload(self, parts: Collection[EnginePart]) -> None:
        """Free the GPU memory of these parts; calls that still run are ended."""
        engine = offloading_engine(self._engine, "engine")
        self._away.update(parts)
        await self._emptied()
        with self._clock.noted("offload"):
            await engine.offload(parts)

    async def reload(self, parts: Collection[EnginePart]) -> None:
        """Bring them back."""
        engine = offloading_engine(self._engine, "engine")
        with self._clock.noted("reload"):
            await engine.reload(parts)
        self._away.difference_update(parts)
        self._let_in()

    async def _emptied(self) -> None:
        """Let no call in, and wait until none is inside."""
        self._gate.shut()
        while not self._waits and self._gate.busy:
            # A call that is inside may not have reached the engine yet.
            await self._engine.abort()
            await asyncio.sleep(_POLL_S)
        await self._gate.empty()

    def _let_in(self) -> None:
        if not self._away:
            self._gate.open()

    async def stay(self) -> None:
        """Never returns; raises ``ActorGone`` when what the engine serves by is gone."""
        if isinstance(self._engine, WatchedEngine):
            await self._engine.stay()
        await super().stay()

    async def activity(self) -> Activity:
        """How long model calls ran, and what it did since it was last asked."""
        return self._clock.report()._replace(tokens=self._tokens, passes=self._passes)

    async def stop(self) -> None:
        """Free the model."""
        await self._engine.stop()
