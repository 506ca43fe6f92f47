"""Routing: which experts of a mixture an engine's router chose, for a trainer that chooses them
again (R3, arXiv 2510.11370).

1. A model call tells the experts of every token of its path but the last, which has not been
   through the model, less those that an earlier call of the path told. A call that was interrupted
   goes on where it was: each token keeps the experts it was sampled with.
2. The engine's actor puts them into the store, (tokens, layers, top_k) a call. When the episode is
   over its worker makes one array of them, (layers, tokens, top_k), call after call of the trace,
   and releases the parts. Parts that never reached a worker expire.
3. The rollout's summary names that array, and is all the driver sees of it. A
   :class:`axisrl.types.Sample` knows where in it its tokens are, whatever branch they are on.
4. :func:`experts_of` reads only the layers that are asked for. A trainer's backend asks for them by
   :class:`ExpertsReader`, from its own thread, while another batch is computed.

It chooses no expert: that is the engine's, and the trainer's.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axisrl.config.schema import RolloutConfig
from axisrl.errors import ConfigError, EngineFailure
from axisrl.protocols import (
    HandleStore,
    ReplayingTrainer,
    RolloutEngine,
    RoutingEngine,
    TrainerBackend,
)
from axisrl.types import GenerateRequest, GenerateResult, Handle, PackedBatch

_SLACK_S = 60.0


def routing_engine(engine: RolloutEngine) -> RoutingEngine:
    """The engine, as one that can tell. Raises ``ConfigError`` when it cannot."""
    if not isinstance(engine, RoutingEngine):
        raise ConfigError(
            "rollout.routing: the engine cannot tell the experts that its router chose",
            fix="set rollout.routing=false, or choose an engine that can",
        )
    return engine


def replaying_trainer(trainer: TrainerBackend) -> ReplayingTrainer:
    """The backend, as one that replays. Raises ``ConfigError`` when it does not."""
    if not isinstance(trainer, ReplayingTrainer):
        raise ConfigError(
            "rollout.routing: the trainer does not choose the experts that the engine chose",
            fix="set rollout.routing=false, or choose a trainer that replays them",
        )
    return trainer


class ExpertsReader:
    """A :data:`axisrl.protocols.ReadExperts` over an actor's store."""

    def __init__(self, store: HandleStore) -> None:
        self._store = store
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self) -> None:
        """Read in the loop that runs here from now on."""
        self._loop = asyncio.get_running_loop()

    def __call__(self, batch: PackedBatch, layers: tuple[int, int]) -> Future[NDArray[Any]]:
        """See :data:`axisrl.protocols.ReadExperts`."""
        if self._loop is None:
            raise RuntimeError("no event loop was attached")
        return asyncio.run_coroutine_threadsafe(experts_of(self._store, batch, layers), self._loop)


def lifetime_s(limits: RolloutConfig) -> float:
    """How long a call's part is kept: longer than any episode that could still read it."""
    return limits.run_timeout_s + 2 * limits.boot_timeout_s + _SLACK_S


def require_whole(call: GenerateRequest, result: GenerateResult) -> None:
    """Raise ``EngineFailure`` unless the result tells the experts that the call asked for."""
    if call.routing_from is None:
        return
    wanted = len(call.prompt_ids) + len(result.ids) - 1 - call.routing_from
    told = sum(part.shape[0] for part in result.routing)
    if told != wanted:
        raise EngineFailure(
            f"the engine told the experts of {told} tokens of {call.id}, not of {wanted}"
        )


async def joined_parts(store: HandleStore, parts: Sequence[Handle]) -> NDArray[Any]:
    """The parts of an episode's calls as one array, (layers, tokens, top_k)."""
    arrays = [await store.get(part) for part in parts]
    return await asyncio.to_thread(_layers_first, arrays)


def _layers_first(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.ascontiguousarray(np.concatenate(arrays).transpose(1, 0, 2))


async def experts_of(
    store: HandleStore, batch: PackedBatch, layers: tuple[int, int]
) -> NDArray[Any]:
    """Experts of a batch's tokens in the layers ``[first, last)``: int16 (layers, N, top_k), -1
    where a token's were not kept. Layers are counted over the whole model, sparse or not.

    Raises ``ValueError`` for a batch of which no token's were kept, ``StoreError`` when they are
    gone.
    """
    if not has_experts(batch):
        raise ValueError("the experts of this batch's tokens were not kept")
    kept = [row for row, handles in enumerate(batch.handles) if "routing" in handles]
    handles = [dataclasses.replace(batch.handles[row]["routing"], rows=layers) for row in kept]
    arrays = await asyncio.gather(*(store.get(handle) for handle in handles))
    found = np.full((layers[1] - layers[0], batch.tokens, handles[0].shape[2]), -1, np.int16)
    for row, array in zip(kept, arrays, strict=True):
        tokens = np.arange(batch.row_starts[row], batch.row_starts[row + 1])
        places = batch.columns["experts_at"][tokens]
        found[:, tokens[places >= 0]] = array[:, places[places >= 0]]
    return found


def has_experts(batch: PackedBatch) -> bool:
    """True when those of a token were kept."""
    places = batch.columns.get("experts_at")
    return places is not None and bool((places >= 0).any())
