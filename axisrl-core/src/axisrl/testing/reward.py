"""What a :class:`axisrl.protocols.Reward` promises. It does not say how much a rollout should earn,
only which of two earns more."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from axisrl.protocols.verifier import Rollout
from axisrl.runtime.rewards import earned
from axisrl.testing.cases import RewardCase
from axisrl.testing.harness import CheckSkipped, Subject, Suite, require, require_close
from axisrl.testing.verifier import rollout_of
from axisrl.trace import Trace
from axisrl.types import GenerateResult, RewardResult, SamplingParams, Task, Verdict

RewardSubject = Subject[RewardCase]
_ANSWERS = ("first answer", "second answer")


def every_number_is_finite(subject: RewardSubject) -> None:
    """Total, parts and turns, for the good and the worse rollout."""
    for result in _both(subject):
        turns = {f"turn {turn}": value for turn, value in enumerate(result.per_turn or ())}
        for name, value in {"total": result.total, **result.parts, **turns}.items():
            require(math.isfinite(value), f"{name} is {value}")


def parts_sum_to_the_total(subject: RewardSubject) -> None:
    """Where the case says so."""
    if not subject.case.additive:
        raise CheckSkipped("the case says additive=False")
    for result in _both(subject):
        parts = sum(result.parts.values())
        require_close(parts, result.total, atol=1e-6, what="the sum of the parts")


def per_turn_has_one_entry_a_turn(subject: RewardSubject) -> None:
    """When it is given at all; and it is given for every rollout or for none."""
    given = [result.per_turn for result in _both(subject)]
    if not any(per_turn is not None for per_turn in given):
        raise CheckSkipped("it gives no reward per turn")
    for per_turn in given:
        require(per_turn is not None, "it gives a reward per turn for one rollout alone")
        found = len(per_turn or ())
        require(found == len(_ANSWERS), f"{found} entries for {len(_ANSWERS)} turns")


def the_better_rollout_earns_more(subject: RewardSubject) -> None:
    """``case.verdicts`` and ``case.tokens`` against ``worse`` and ``worse_tokens``."""
    good, worse = (result.total for result in _both(subject))
    require(good > worse, f"the better rollout earned {good}, the worse one {worse}")


def a_score_of_zero_is_a_score(subject: RewardSubject) -> None:
    """0.0 is judged and wrong: it earns a number, no more than the good verdicts do."""
    zero = {
        name: dataclasses.replace(verdict, score=0.0, passed=False)
        for name, verdict in subject.case.verdicts.items()
    }
    rollout = _rollout(subject.case, subject.case.tokens)
    total, best = _earned(subject, rollout, zero).total, next(_both(subject)).total
    require(math.isfinite(total), f"scores of 0.0 earned {total}")
    require(total <= best, f"scores of 0.0 earned {total}, more than {best}")


def same_inputs_same_result(subject: RewardSubject) -> None:
    """And the inputs are as they were."""
    reward, rollout = subject.build(), _rollout(subject.case, subject.case.tokens)
    verdicts = dict(subject.case.verdicts)
    before = copy.deepcopy((verdicts, rollout.messages, rollout.turn_parts))
    first, second = (asyncio.run(earned(reward, rollout, verdicts)) for _ in range(2))
    require(first == second, f"two calls gave {first} and {second}")
    after = (verdicts, rollout.messages, rollout.turn_parts)
    require(after == before, "the reward changed its inputs")


class RewardSuite(Suite):
    """Tries a reward with ``RewardCase``s."""

    kind = "reward"
    checks = (
        every_number_is_finite,
        parts_sum_to_the_total,
        per_turn_has_one_entry_a_turn,
        the_better_rollout_earns_more,
        a_score_of_zero_is_a_score,
        same_inputs_same_result,
    )


def _both(subject: RewardSubject) -> Iterator[RewardResult]:
    """What the good and the worse rollout earn."""
    case = subject.case
    yield _earned(subject, _rollout(case, case.tokens), dict(case.verdicts))
    yield _earned(subject, _rollout(case, case.worse_tokens), dict(case.worse))


def _rollout(case: RewardCase, tokens: int) -> Rollout:
    played = rollout_of(Task(id="sample", data={}), *_ANSWERS)
    parts = (dict(case.env_parts), *({} for _ in _ANSWERS[1:]))
    return dataclasses.replace(played, turn_parts=parts, trace=_trace(tokens))


def _trace(tokens: int) -> Trace:
    """A prompt, and ``tokens`` sampled over the turns."""
    trace = Trace()
    last = trace.append("prompt", [1], parent=None)
    for ids in np.array_split(np.ones(tokens, np.int32), len(_ANSWERS)):
        if not len(ids):
            continue
        result = GenerateResult(
            ids=ids,
            logprobs=np.zeros(len(ids), np.float32),
            versions=np.zeros(len(ids), np.int32),
            finish_reason="stop",
        )
        last = trace.append_sampled(result, parent=last, sampling=SamplingParams(), seed=0)
    return trace


def _earned(subject: RewardSubject, rollout: Rollout, verdicts: dict[str, Verdict]) -> RewardResult:
    return asyncio.run(earned(subject.build(), rollout, verdicts))
