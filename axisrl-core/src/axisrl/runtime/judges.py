"""Verifiers and rewards in processes of their own: ``placement.verifiers`` and
``placement.rewards``.

A rollout goes to them straight from its worker. They judge with the code a worker judges with
(:mod:`axisrl.runtime.judging`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from axisrl.errors import VerifierFailure
from axisrl.protocols import HandleStore, Rollout
from axisrl.runtime.actors import ActorBoot
from axisrl.runtime.boundaries import at
from axisrl.runtime.callers import Caller
from axisrl.runtime.calls import Answers, Call, answered_by
from axisrl.runtime.judging import HeldRewards, HeldVerifiers, Judging, offer_judges
from axisrl.runtime.staff import Peers
from axisrl.types import RewardResult, Verdict


class VerifierActor(Caller):
    """Verifiers in a process of their own."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None, peers: Peers) -> None:
        """``peers``: the services it may call."""
        super().__init__(boot, store, peers)
        offer_judges(self)
        self._held = HeldVerifiers(self)
        self.started()

    async def answer(self, call: Call) -> Verdict:
        """The verdict of the verifier ``call.name`` over the rollout it is given."""
        return await self._held.verify(call.name, *call.args)


class RewardActor(Caller):
    """Rewards in a process of their own."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None, peers: Peers) -> None:
        """``peers``: the services it may call."""
        super().__init__(boot, store, peers)
        offer_judges(self)
        self._held = HeldRewards(self)
        self.started()

    async def answer(self, call: Call) -> RewardResult:
        """What the reward ``call.name`` gives for a rollout and its verdicts."""
        return await self._held.reward(call.name, *call.args)


class RoutedJudges:
    """Verifiers, or rewards, that live in other processes."""

    def __init__(self, members: Answers, limit_s: float) -> None:
        self._members = members
        self._limit_s = limit_s

    async def verify(self, name: str, rollout: Rollout) -> Verdict:
        """As :class:`axisrl.runtime.judging.Verifies`."""
        verdict: Verdict = await self._asked(f"verifier {name}", name, rollout)
        return verdict

    async def reward(
        self, name: str, rollout: Rollout, verdicts: Mapping[str, Verdict]
    ) -> RewardResult:
        """As :class:`axisrl.runtime.judging.Rewards`."""
        result: RewardResult = await self._asked(f"reward {name}", name, rollout, verdicts)
        return result

    async def _asked(self, what: str, name: str, *args: Any) -> Any:
        call = Call(name=name, args=args, limit_s=self._limit_s)
        return await at("verifier", answered_by(self._members, what, call, VerifierFailure), what)


def judging_of(actor: Caller) -> Judging:
    """What scores rollouts for ``actor``: in its process, or in those it has for it."""
    offer_judges(actor)
    limit_s = actor.boot.config.rollout.score_timeout_s
    verifiers, rewards = actor.routers.get("verifier"), actor.routers.get("reward")
    return Judging(
        actor.boot,
        RoutedJudges(verifiers, limit_s) if verifiers else HeldVerifiers(actor),
        RoutedJudges(rewards, limit_s) if rewards else HeldRewards(actor),
    )
