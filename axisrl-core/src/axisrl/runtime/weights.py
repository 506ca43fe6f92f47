"""Weight sync: offer, load everywhere, and believe nothing but the echo."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from axisrl.errors import WeightSyncError
from axisrl.runtime.actors import ActorHandle
from axisrl.types import WeightAck, WeightUpdate


async def sync_weights(
    trainer: ActorHandle, engines: Sequence[ActorHandle], version: int, timeout_s: float
) -> None:
    """Bring every engine to ``version``.

    Raises ``WeightSyncError`` naming the rank and both versions when an engine is late, dead, or
    echoes
    another version or checksum.
    """
    update: WeightUpdate = await trainer.call("weight_update", version)
    await asyncio.gather(
        *(_one(engine, rank, update, timeout_s) for rank, engine in enumerate(engines))
    )


async def _one(engine: ActorHandle, rank: int, update: WeightUpdate, timeout_s: float) -> None:
    where = f"engine rank {rank}"
    try:
        async with asyncio.timeout(timeout_s):
            ack: WeightAck = await engine.call("update_weights", update)
    except TimeoutError:
        raise WeightSyncError(
            f"{where} did not confirm version {update.version} within {timeout_s:g} s",
            fix="check that it is alive; raise placement.sync_timeout_s for a slow disk",
        ) from None
    if ack.version != update.version or ack.checksum != update.checksum:
        raise WeightSyncError(
            f"{where} serves version {ack.version} ({ack.checksum}), "
            f"the trainer sent {update.version} ({update.checksum})",
            fix="the transport damaged the weights; try another weight transport",
        )
