"""Judging: what a finished rollout's verifiers say of it, and what its rewards make of that.

1. Verifiers judge side by side, each under ``rollout.score_timeout_s``; then the rewards do.
2. Whatever a verifier or a reward does wrong is a ``VerifierFailure`` that names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from axisrl.errors import VerifierFailure
from axisrl.protocols import Reward, Rollout, Verifier
from axisrl.runtime.actors import Actor, ActorBoot
from axisrl.runtime.boundaries import at, in_time, inside
from axisrl.runtime.chat import load_tokenizer
from axisrl.runtime.rewards import checked, combined, earned
from axisrl.types import RewardResult, Verdict

T = TypeVar("T")


class Verifies(Protocol):
    """Asks a verifier by its name."""

    async def verify(self, name: str, rollout: Rollout) -> Verdict:
        """A verdict with a score. Raises ``VerifierFailure`` naming the verifier."""
        ...


class Rewards(Protocol):
    """Asks a reward by its name."""

    async def reward(
        self, name: str, rollout: Rollout, verdicts: Mapping[str, Verdict]
    ) -> RewardResult:
        """A sound result. Raises ``VerifierFailure`` naming the reward."""
        ...


class HeldVerifiers:
    """The verifiers of a run, in this process."""

    def __init__(self, actor: Actor) -> None:
        config = actor.boot.config
        self._limit_s = config.rollout.score_timeout_s
        self._verifiers: dict[str, Verifier] = {
            name: actor.build("verifier", use, f"verifiers.{name}")
            for name, use in config.verifiers.items()
        }

    async def verify(self, name: str, rollout: Rollout) -> Verdict:
        """As :class:`Verifies`; the verifier is cancelled at its deadline."""
        late = VerifierFailure(f"verifier {name} gave no verdict within {self._limit_s:g} s")
        work = self._verifiers[name].verify(rollout.task, rollout)
        verdict = await at("verifier", in_time(work, self._limit_s, late), f"verifier {name}")
        if verdict.score is None:
            raise VerifierFailure(
                f"verifier {name} could not judge: {verdict.error or 'no reason'}"
            )
        if not np.isfinite(verdict.score):
            raise VerifierFailure(f"verifier {name} gave the score {verdict.score}")
        return verdict


class HeldRewards:
    """The rewards of a run, in this process."""

    def __init__(self, actor: Actor) -> None:
        config = actor.boot.config
        self._limit_s = config.rollout.score_timeout_s
        self._rewards: dict[str, Reward] = {
            name: actor.build("reward", use, f"rewards.{name}")
            for name, use in config.rewards.items()
        }

    async def reward(
        self, name: str, rollout: Rollout, verdicts: Mapping[str, Verdict]
    ) -> RewardResult:
        """As :class:`Rewards`; a reward that awaits is cancelled at its deadline."""
        late = VerifierFailure(f"reward {name} gave no result within {self._limit_s:g} s")
        with inside("verifier", f"reward {name}"):
            work = earned(self._rewards[name], rollout, verdicts)
            return checked(name, await in_time(work, self._limit_s, late), rollout.turns)


def offer_judges(actor: Actor) -> None:
    """Give what judges find in ``BuildContext.services`` to an actor that builds them.

    The tokenizer comes late: it takes seconds and the memory of torch, and few judges need it.
    """
    actor.services.late["tokenizer"] = partial(load_tokenizer, actor.boot.model.path)
    actor.services["verifiers"] = tuple(actor.boot.config.verifiers)


class Judging:
    """Scores rollouts with a run's verifiers and rewards, wherever they are."""

    def __init__(self, boot: ActorBoot, verifiers: Verifies, rewards: Rewards) -> None:
        self._config = boot.config
        self._verifiers = verifiers
        self._rewards = rewards

    async def score(self, rollout: Rollout, verdicts: dict[str, Verdict]) -> RewardResult:
        """What the rollout earns. ``verdicts`` is filled with those there are, also when one is
        missing and ``VerifierFailure`` says why."""
        names = tuple(self._config.verifiers)
        judged = await _side_by_side([self._verifiers.verify(name, rollout) for name in names])
        pairs = list(zip(names, judged, strict=True))
        verdicts.update({name: v for name, v in pairs if not isinstance(v, BaseException)})
        _sound(judged)
        asked = tuple(self._config.rewards)
        results = await _side_by_side(
            [self._rewards.reward(name, rollout, verdicts) for name in asked]
        )
        return combined(dict(zip(asked, _sound(results), strict=True)), self._config.reward_weights)


async def _side_by_side(work: Sequence[Awaitable[T]]) -> list[T | BaseException]:
    return await asyncio.gather(*work, return_exceptions=True)


def _sound(results: Sequence[T | BaseException]) -> list[T]:
    """The results, or the first failure among them."""
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
