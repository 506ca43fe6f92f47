"""Reward: turns verdicts and the env's own reward parts into the number that is maximised."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Protocol

from axisrl.protocols.verifier import Rollout
from axisrl.types import RewardResult, Verdict


class Reward(Protocol):
    """Pure: same inputs, same result; inputs are not changed. One that asks a service for its
    number is written ``async def __call__``."""

    def __call__(
        self, rollout: Rollout, verdicts: Mapping[str, Verdict]
    ) -> RewardResult | Awaitable[RewardResult]:
        """``verdicts`` are keyed by the verifier's name in the config; their scores are never None
        here."""
        ...
