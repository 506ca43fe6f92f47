"""Weight sync: offer, load everywhere, and believe nothing but the echo."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from axisrl.errors import RunFailed, WeightSyncError
from axisrl.runtime.actors import ActorHandle
from axisrl.types import WeightAck, WeightUpdate


async def sync_weights(
    trainer: ActorHandle,
    engines: Sequence[ActorHandle],
    versions: tuple[int, int],
    timeout_s: float,
) -> None:
    """Bring every engine from the first of ``versions``, which it serves, to the second.

    Raises ``WeightSyncError`` naming the rank and both versions when an engine is late, dead, or
    echoes another version or checksum.
    """
    served, version = versions
    update: WeightUpdate = await trainer.call("weight_update", version)
    places = [f"engine rank {rank}, on version {served}," for rank in range(len(engines))]
    await asyncio.gather(
        *(
            _one(engine, where, update, timeout_s)
            for engine, where in zip(engines, places, strict=True)
        )
    )


async def _one(engine: ActorHandle, where: str, update: WeightUpdate, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            ack: WeightAck = await engine.call("update_weights", update)
    except TimeoutError:
        raise WeightSyncError(
            f"{where} did not confirm version {update.version} within {timeout_s:g} s",
            fix="check that it is alive; raise placement.sync_timeout_s for a slow disk",
        ) from None
    except RunFailed as dead:
        raise WeightSyncError(
            f"{where} cannot take version {update.version}: {dead.message}", fix=dead.fix
        ) from dead
    if ack.version != update.version or ack.checksum != update.checksum:
        raise WeightSyncError(
            f"{where} answered with version {ack.version} ({ack.checksum}), "
            f"the trainer sent {update.version} ({update.checksum})",
            fix="try another weight transport: this one lost or damaged what was sent",
        )
