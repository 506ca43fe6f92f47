"""RolloutEngine: samples tokens. Token ids in, ids with logprobs and weight versions out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

from axisrl.types import (
    FloatArray,
    GenerateRequest,
    GenerateResult,
    Handle,
    IntArray,
    ModelSpec,
    Payload,
    WeightAck,
    WeightUpdate,
)


class RolloutEngine(Protocol):
    """Serves one model, many requests at once (continuous batching is the engine's business)."""

    async def start(self, model: ModelSpec) -> None:
        """Load the model as version 0. Raises ``EnvironmentProblem`` when it cannot."""
        ...

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample until a stop token, a stop string, ``max_tokens`` or the context limit.

        The sampled stop token is part of the result. Waits while paused. An aborted request returns
        what it has, with ``finish_reason="abort"``. A prompt that leaves no room raises
        ``EngineFailure``.
        """
        ...

    async def abort(self, session: str | None = None) -> int:
        """End the running requests of a session, or all of them; returns how many, once they are
        over."""
        ...

    async def update_weights(self, update: WeightUpdate) -> WeightAck:
        """Load new weights and flush every cached prefix. Echoes the version and the checksum of
        what it now serves.

        Refuses (``WeightSyncError``) while requests run: pause and abort, or wait, first.
        """
        ...

    async def pause(self) -> None:
        """Start no new request until ``resume``; running ones go on."""
        ...

    async def resume(self) -> None:
        """Undo ``pause``."""
        ...

    async def stop(self) -> None:
        """Free the model; idempotent."""
        ...


@runtime_checkable
class WatchedEngine(RolloutEngine, Protocol):
    """An engine whose model is served by other processes than the engine's own."""

    async def stay(self) -> None:
        """Never returns; raises ``ActorGone`` once what serves is gone."""
        ...


@runtime_checkable
class SpanningEngine(RolloutEngine, Protocol):
    """An engine that can be on several machines at once: a part on each, every one an instance of
    its own. Part 0 is called; of the others only ``start``, ``stop`` and, where it is a
    :class:`WatchedEngine`, ``stay``."""

    def join(self, part: int, parts: int, address: str) -> None:
        """Be that part of so many from the next ``start`` on, which returns once all are there;
        called before it. ``address``: ``host:port`` where they can meet, on part 0's machine.

        Raises ``ConfigError`` for options that do not work over several machines.
        """
        ...


Keep = Callable[[Payload], Awaitable[Handle]]
"""Puts an array where every reader of the run finds it."""


@runtime_checkable
class RoutingEngine(RolloutEngine, Protocol):
    """An engine that can tell which experts of a mixture its router chose for each token."""

    def capture_routing(self, keep: Keep) -> None:
        """Be ready, from the next ``start`` on, for requests with ``routing_from``; called before
        it. ``start`` raises ``EnvironmentProblem`` for a model without experts.

        A result's ``routing`` are the handles of what ``keep`` was given: uint8, or int16 where
        there are more than 256 experts. Layers without experts are 0.
        """
        ...


@runtime_checkable
class ScoringEngine(RolloutEngine, Protocol):
    """An engine that can also say how likely given tokens are: what a served teacher must do."""

    async def score(self, ids: IntArray, temperature: float) -> FloatArray:
        """Log-probability of each token but the first given those before it, at a temperature:
        float32[tokens - 1]. Raises ``EngineFailure`` when the ids do not fit the context."""
        ...
