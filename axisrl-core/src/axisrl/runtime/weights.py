"""Weight sync: offer, load everywhere, and believe nothing but the echo."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping

from axisrl.errors import ActorGone, Irreplaceable, WeightSyncError
from axisrl.runtime.actors import ActorHandle
from axisrl.runtime.supervisor import Post
from axisrl.types import WeightAck, WeightUpdate

_REREADABLE = ("shared_memory", "disk", "nccl")
"""Transports whose offer can be had again, at least until the next."""


class Engines:
    """The engine replicas of a run, in their places, and the weights they serve."""

    def __init__(self, posts: Mapping[str, Post], timeout_s: float) -> None:
        """``posts``: name in errors -> place."""
        self.posts = posts
        self._timeout_s = timeout_s
        self._served: WeightUpdate | None = None
        self._offering = asyncio.Lock()

    async def sync(self, trainer: ActorHandle, versions: tuple[int, int]) -> None:
        """Bring every engine to the trainer's weights, as :func:`sync_weights` does."""
        if not self.posts:
            return
        held, version = versions
        async with self._offering:
            update = await _offered(trainer, self.posts, version)
            self._served = update  # an engine that starts meanwhile begins with it
        await _deliver_all(self.posts, held, update, self._timeout_s)

    async def catch_up(self, name: str, engine: ActorHandle) -> None:
        """Bring a new engine, which holds the model the run started from, to what the others serve.

        Raises ``Irreplaceable`` where that was not kept anywhere.
        """
        while (update := await self._newest()) is not None:
            lost = f"{name} is gone, and version {update.version} was sent by {update.transport}"
            if update.transport not in _REREADABLE:
                raise Irreplaceable(f"{lost}, which keeps nothing for another engine")
            alone = dataclasses.replace(update, receivers=1)
            try:
                return await _deliver(engine, f"{name}, started again,", alone, self._timeout_s)
            except WeightSyncError as problem:
                if await self._newest() is update:
                    raise Irreplaceable(
                        f"{lost}, which does not give it again: {problem.message}", fix=problem.fix
                    ) from problem

    async def _newest(self) -> WeightUpdate | None:
        """What is on offer, once no offer is being made: that ends the one before."""
        async with self._offering:
            return self._served


async def sync_weights(
    trainer: ActorHandle,
    receivers: Mapping[str, ActorHandle],
    versions: tuple[int, int],
    timeout_s: float,
) -> None:
    """Bring every receiver (name -> an engine's place, or a frozen model) from the first of
    ``versions``, which it holds, to the second. Without receivers nothing is offered. An engine
    that takes the place of one that is gone gets the weights instead of it.

    Raises ``WeightSyncError`` naming the receiver and both versions when one is late, refuses, or
    echoes another version or checksum.
    """
    if receivers:
        held, version = versions
        update = await _offered(trainer, receivers, version)
        await _deliver_all(receivers, held, update, timeout_s)


async def _offered(
    trainer: ActorHandle, receivers: Mapping[str, ActorHandle], version: int
) -> WeightUpdate:
    update: WeightUpdate = await trainer.call("weight_update", version)
    return dataclasses.replace(update, receivers=len(receivers))


async def _deliver_all(
    receivers: Mapping[str, ActorHandle], held: int, update: WeightUpdate, timeout_s: float
) -> None:
    await asyncio.gather(
        *(
            _deliver(receiver, f"{name}, on version {held},", update, timeout_s)
            for name, receiver in receivers.items()
        )
    )


async def _deliver(
    receiver: ActorHandle, where: str, update: WeightUpdate, timeout_s: float
) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            ack = await _loaded(receiver, update)
    except TimeoutError:
        raise WeightSyncError(
            f"{where} did not confirm version {update.version} within {timeout_s:g} s",
            fix="check that it is alive; raise placement.sync_timeout_s for a slow disk",
        ) from None
    except WeightSyncError as refused:
        raise WeightSyncError(
            f"{where} did not take version {update.version}: {refused.message}", fix=refused.fix
        ) from refused
    if ack.version != update.version or ack.checksum != update.checksum:
        raise WeightSyncError(
            f"{where} answered with version {ack.version} ({ack.checksum}), "
            f"the trainer sent {update.version} ({update.checksum})",
            fix="try another weight transport: this one lost or damaged what was sent",
        )


async def _loaded(receiver: ActorHandle, update: WeightUpdate) -> WeightAck:
    """The answer of whoever is in the place, now or once it is filled again."""
    while isinstance(receiver, Post):
        holder = receiver.handle
        try:
            ack: WeightAck = await holder.call("update_weights", update)
            return ack
        except ActorGone:
            await receiver.successor(holder)
    ack = await receiver.call("update_weights", update)
    return ack
