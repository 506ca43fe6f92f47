"""EngineActor: a rollout engine where the placement puts it."""

from __future__ import annotations

from axisrl.config.schema import needed
from axisrl.protocols import HandleStore, RolloutEngine
from axisrl.runtime.actors import Actor, ActorBoot
from axisrl.types import GenerateRequest, GenerateResult, WeightAck, WeightUpdate


class EngineActor(Actor):
    """Passes calls on to the engine component; adds nothing to them."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        super().__init__(boot, store)
        use = needed(boot.config.engine, "engine")
        self._engine: RolloutEngine = self.build("engine", use, "engine")
        self.started()

    async def start(self) -> None:
        """Load the model."""
        await self._engine.start(self.boot.model)

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample one model call."""
        return await self._engine.generate(request)

    async def abort(self, session: str | None = None) -> int:
        """End the running requests of a session, or all."""
        return await self._engine.abort(session)

    async def update_weights(self, update: WeightUpdate) -> WeightAck:
        """Load new weights between a pause and a resume.

        Nobody waits for what still runs then (all rollouts of the window are home): a request
        whose rollout ran out of time would only hold the update up.
        """
        await self._engine.pause()
        try:
            await self._engine.abort()
            return await self._engine.update_weights(update)
        finally:
            await self._engine.resume()

    async def stop(self) -> None:
        """Free the model."""
        await self._engine.stop()
