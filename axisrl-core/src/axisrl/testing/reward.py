"""What a :class:`axisrl.protocols.Reward` promises. It does not say how much a rollout should earn,
only which of two earns more."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping

from axisrl.protocols.verifier import Rollout
from axisrl.testing.cases import RewardCase
from axisrl.testing.harness import CheckSkipped, Subject, Suite, require, require_close
from axisrl.testing.verifier import rollout_of
from axisrl.types import RewardResult, Task, Verdict

RewardSubject = Subject[RewardCase]


def total_and_parts_are_finite(subject: RewardSubject) -> None:
    """For the good and the worse verdicts."""
    for verdicts in (subject.case.verdicts, subject.case.worse):
        result = _earned(subject, verdicts)
        for name, value in {"total": result.total, **result.parts}.items():
            require(math.isfinite(value), f"{name} is {value}")


def parts_sum_to_the_total(subject: RewardSubject) -> None:
    """Where the case says so."""
    if not subject.case.additive:
        raise CheckSkipped("the case says additive=False")
    for verdicts in (subject.case.verdicts, subject.case.worse):
        result = _earned(subject, verdicts)
        parts = sum(result.parts.values())
        require_close(parts, result.total, atol=1e-6, what="the sum of the parts")


def per_turn_has_one_entry_a_turn(subject: RewardSubject) -> None:
    """When it is given at all."""
    per_turn = _earned(subject, subject.case.verdicts).per_turn
    if per_turn is None:
        raise CheckSkipped("it gives no reward per turn")
    turns = _rollout(subject).turns
    require(len(per_turn) == turns, f"{len(per_turn)} entries for {turns} turns")


def better_verdicts_earn_more(subject: RewardSubject) -> None:
    """``case.verdicts`` against ``case.worse``."""
    good = _earned(subject, subject.case.verdicts).total
    worse = _earned(subject, subject.case.worse).total
    require(good > worse, f"the better verdicts earned {good}, the worse ones {worse}")


def a_score_of_zero_is_a_score(subject: RewardSubject) -> None:
    """0.0 is judged and wrong: it earns a number, no more than the good verdicts do."""
    zero = {
        name: dataclasses.replace(verdict, score=0.0, passed=False)
        for name, verdict in subject.case.verdicts.items()
    }
    total, best = _earned(subject, zero).total, _earned(subject, subject.case.verdicts).total
    require(math.isfinite(total), f"scores of 0.0 earned {total}")
    require(total <= best, f"scores of 0.0 earned {total}, more than {best}")


def same_inputs_same_result(subject: RewardSubject) -> None:
    """And the inputs are as they were."""
    reward, rollout = subject.build(), _rollout(subject)
    verdicts = dict(subject.case.verdicts)
    before = copy.deepcopy((verdicts, rollout.messages, dict(rollout.env_parts)))
    first, second = reward(rollout, verdicts), reward(rollout, verdicts)
    require(first == second, f"two calls gave {first} and {second}")
    after = (verdicts, rollout.messages, dict(rollout.env_parts))
    require(after == before, "the reward changed its inputs")


class RewardSuite(Suite):
    """Tries a reward with ``RewardCase``s."""

    kind = "reward"
    checks = (
        total_and_parts_are_finite,
        parts_sum_to_the_total,
        per_turn_has_one_entry_a_turn,
        better_verdicts_earn_more,
        a_score_of_zero_is_a_score,
        same_inputs_same_result,
    )


def _rollout(subject: RewardSubject) -> Rollout:
    rollout = rollout_of(Task(id="sample", data={}), "first answer", "second answer")
    return dataclasses.replace(rollout, env_parts=dict(subject.case.env_parts))


def _earned(subject: RewardSubject, verdicts: Mapping[str, Verdict]) -> RewardResult:
    result: RewardResult = subject.build()(_rollout(subject), dict(verdicts))
    return result
