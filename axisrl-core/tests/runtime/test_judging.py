"""How a rollout is scored: verifiers side by side, then rewards, wherever they are."""

import asyncio

import pytest

from axisrl.errors import VerifierFailure
from axisrl.runtime.judging import Judging
from axisrl.testing.verifier import rollout_of
from axisrl.types import RewardResult, Task, Verdict

ROLLOUT = rollout_of(Task(id="t", data={}), "an answer")


class Judges:
    """Verifiers that judge only when all are asked, and rewards that pay what they are named."""

    def __init__(self, verdicts):
        self.verdicts, self.asked, self.all_asked = verdicts, [], asyncio.Event()

    async def verify(self, name, rollout):
        self.asked.append(name)
        if len(self.asked) == len(self.verdicts):
            self.all_asked.set()
        await self.all_asked.wait()
        if isinstance(self.verdicts[name], Exception):
            raise self.verdicts[name]
        return self.verdicts[name]

    async def reward(self, name, rollout, verdicts):
        if name == "breaks":
            raise VerifierFailure("reward breaks: bug")
        return RewardResult(total=sum(verdict.score for verdict in verdicts.values()))


@pytest.fixture
def scored(stage):
    """``scored(verdicts, *overrides)``: what the rollout earns, or the failure; and its
    verdicts."""

    def scored(verdicts, *overrides):
        named = ", ".join(f"{name}: stage/exact" for name in verdicts)
        boot = stage.boot(f"verifiers={{{named}}}", "verifiers.exact=null", *overrides)
        kept = {}

        async def score():
            judges = Judges(verdicts)
            try:
                return await Judging(boot, judges, judges).score(ROLLOUT, kept)
            except VerifierFailure as failure:
                return failure

        return asyncio.run(score()), kept

    return scored


def test_verifiers_judge_side_by_side_and_rewards_see_all_verdicts(scored):
    verdicts = {"a": Verdict(score=1.0), "b": Verdict(score=0.5)}
    result, kept = scored(verdicts, "rewards.more=core/sum", "reward_weights.more=2")
    assert result.total == 4.5
    assert kept == verdicts


def test_verdicts_that_were_given_are_kept_when_another_is_missing(scored):
    wrong = VerifierFailure("verifier b: bug")
    result, kept = scored({"a": Verdict(score=1.0), "b": wrong, "c": Verdict(score=0.0)})
    assert result is wrong
    assert list(kept) == ["a", "c"]


def test_the_first_failure_in_the_configurations_order_is_the_one_told(scored):
    first, second = VerifierFailure("verifier a: bug"), VerifierFailure("verifier b: bug")
    assert scored({"a": first, "b": second})[0] is first
    result, _ = scored({"a": Verdict(score=1.0)}, "rewards.breaks=core/sum")
    assert result.message == "reward breaks: bug"
