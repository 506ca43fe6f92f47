"""Weight sync: offer, load everywhere, and believe nothing but the echo."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from axisrl.errors import RunFailed, WeightSyncError
from axisrl.runtime.actors import ActorHandle
from axisrl.types import WeightAck, WeightUpdate


async def sync_weights(
    trainer: ActorHandle,
    receivers: Mapping[str, ActorHandle],
    versions: tuple[int, int],
    timeout_s: float,
) -> None:
    """Bring every receiver (name -> an engine, or a frozen model) from the first of ``versions``,
    which it holds, to the second. Without receivers nothing is offered.

    Raises ``WeightSyncError`` naming the receiver and both versions when one is late, dead, or
    echoes another version or checksum.
    """
    if not receivers:
        return
    held, version = versions
    update: WeightUpdate = await trainer.call("weight_update", version)
    await asyncio.gather(
        *(
            _one(receiver, f"{name}, on version {held},", update, timeout_s)
            for name, receiver in receivers.items()
        )
    )


async def _one(receiver: ActorHandle, where: str, update: WeightUpdate, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            ack: WeightAck = await receiver.call("update_weights", update)
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
