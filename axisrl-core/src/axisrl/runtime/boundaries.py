"""Boundaries of a rollout: whose failure it is that something raised or took too long, and what
the rollout then counts as. It decides nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator
from typing import Literal, TypeVar

from axisrl.errors import (
    AxisrlError,
    ConfigError,
    EngineFailure,
    EnvFailure,
    HarnessFailure,
    PluginError,
    RolloutFailure,
    VerifierFailure,
)
from axisrl.types import Outcome

T = TypeVar("T")
_LETTING_GO_S = 1.0
"""What cancelled work gets to free what it holds, before nobody waits for it any more."""
Boundary = Literal["env", "engine", "verifier"]
_FAILURES: dict[Boundary, type[RolloutFailure]] = {
    "env": EnvFailure,
    "engine": EngineFailure,
    "verifier": VerifierFailure,
}
_OUTCOMES: tuple[tuple[type[RolloutFailure], Outcome], ...] = (
    (EngineFailure, Outcome.ENGINE_ERROR),
    (VerifierFailure, Outcome.VERIFIER_ERROR),
    (HarnessFailure, Outcome.HARNESS_ERROR),
)


def outcome_of(failure: RolloutFailure) -> Outcome:
    """What a rollout that ended by ``failure`` counts as."""
    matches = (outcome for kind, outcome in _OUTCOMES if isinstance(failure, kind))
    return next(matches, Outcome.ENV_ERROR)


async def at(boundary: Boundary, work: Awaitable[T], what: str = "") -> T:
    """Await ``work``; what it raises is that boundary's failure."""
    with inside(boundary, what):
        return await work


@contextlib.contextmanager
def inside(boundary: Boundary, what: str = "") -> Iterator[None]:
    """What the block raises is that boundary's failure; ``what`` broke, or the boundary itself."""
    try:
        yield
    except (RolloutFailure, ConfigError, PluginError):
        raise  # the last two are wrong for every rollout: they end the run
    except Exception as error:  # components are foreign code: attribute anything they raise
        message = f"{what or boundary}: {type(error).__name__}: {error}"
        raise _FAILURES[boundary](message) from error


async def in_time(work: Awaitable[T], limit_s: float, late: AxisrlError) -> T:
    """Await ``work``; after ``limit_s`` it is cancelled and ``late`` raised, whether or not it lets
    itself be cancelled. A ``TimeoutError`` of its own passes."""
    try:
        async with asyncio.timeout(limit_s) as scope:
            return await abandonable(work)
    except TimeoutError:
        if scope.expired():
            raise late from None
        raise


async def abandonable(work: Awaitable[T]) -> T:
    """Await foreign work that may not let itself be cancelled: then nobody waits for it any
    more."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=_LETTING_GO_S)
    if task.cancelled():
        raise RuntimeError("it cancelled itself")
    return task.result()
