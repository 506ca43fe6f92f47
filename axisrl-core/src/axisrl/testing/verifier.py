"""What a :class:`axisrl.protocols.Verifier` promises. It does not say what an answer is worth: the
case does."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import math
import threading
from typing import Any

from axisrl.plugins.components import VerifierComponent
from axisrl.protocols.verifier import Rollout, Verifier
from axisrl.testing.cases import VerifierCase
from axisrl.testing.harness import CheckFailed, CheckSkipped, Subject, Suite, require
from axisrl.testing.hostile import HOSTILE, canaries
from axisrl.trace import Trace
from axisrl.types import Message, Outcome, Task, Verdict

VerifierSubject = Subject[VerifierCase]


def rollout_of(task: Task, *answers: str) -> Rollout:
    """A finished rollout in which the policy said ``answers``."""
    question = Message(role="user", content=str(task.data.get("question", task.id)))
    said = tuple(Message(role="assistant", content=answer) for answer in answers)
    return Rollout(
        id=f"{task.id}/0",
        task=task,
        member=0,
        outcome=Outcome.COMPLETED,
        messages=(question, *said),
        trace=Trace(),
        turns=len(answers),
    )


async def gold_answers_score_one(subject: VerifierSubject) -> None:
    """Each of ``case.gold`` scores exactly 1 and passes."""
    verifier: Verifier = subject.build()
    for answer in subject.case.gold:
        verdict = await _verdict(verifier, subject.case.task, answer)
        require(
            verdict.score == 1.0 and verdict.passed,
            f"the gold answer {_short(answer)} got {_told(verdict)}",
        )


async def wrong_answers_score_lower(subject: VerifierSubject) -> None:
    """Each of ``case.wrong`` is judged, scores below 1 and does not pass."""
    require(subject.case.wrong, "the case names no wrong answer")
    verifier: Verifier = subject.build()
    for answer in subject.case.wrong:
        verdict = await _verdict(verifier, subject.case.task, answer)
        require(
            verdict.score is not None and verdict.score < 1.0 and not verdict.passed,
            f"the wrong answer {_short(answer)} got {_told(verdict)}",
        )


def hostile_answers_never_raise(subject: VerifierSubject) -> None:
    """Empty, huge, malformed and non-UTF-8 answers get a verdict, in time, and do not pass."""
    verifier: Verifier = subject.build()
    for answer in HOSTILE:
        verdict = _judged_in_time(subject, verifier, rollout_of(subject.case.task, answer))
        _require_well_formed(verdict, answer)
        require(not verdict.passed, f"the answer {_short(answer)} passed: {_told(verdict)}")


def a_rollout_without_an_answer_is_judged(subject: VerifierSubject) -> None:
    """A policy that never spoke gets a verdict that does not pass."""
    verdict = _judged_in_time(subject, subject.build(), rollout_of(subject.case.task))
    _require_well_formed(verdict, "")
    require(not verdict.passed, f"a rollout without an answer passed: {_told(verdict)}")


def model_text_is_never_evaluated(subject: VerifierSubject) -> None:
    """No answer is run as Python or as a shell command."""
    canary = subject.work_dir / "canary"
    verifier: Verifier = subject.build()
    for answer in canaries(canary):
        _judged_in_time(subject, verifier, rollout_of(subject.case.task, answer))
        require(not canary.exists(), f"the answer {_short(answer)} was executed")


async def a_missing_field_is_never_a_score(subject: VerifierSubject) -> None:
    """Without one of ``case.required`` the verifier raises, or reports that it could not judge."""
    if not subject.case.required:
        raise CheckSkipped("the case names no required field")
    verifier: Verifier = subject.build()
    for name in subject.case.required:
        data = {key: value for key, value in subject.case.task.data.items() if key != name}
        task = dataclasses.replace(subject.case.task, data=data)
        try:
            verdict = await _verdict(verifier, task, subject.case.gold[0])
        except Exception:  # noqa: BLE001 - any exception type keeps the promise
            continue
        require(verdict.score is None, f"without {name!r} it still gave {_told(verdict)}")


async def deterministic_when_it_says_so(subject: VerifierSubject) -> None:
    """Two instances and two calls give the same verdict."""
    descriptor = subject.descriptor
    if isinstance(descriptor, VerifierComponent) and not descriptor.deterministic:
        raise CheckSkipped("its descriptor says deterministic=False")
    first, second = subject.build(), subject.build()
    for answer in (*subject.case.gold, *subject.case.wrong):
        verdicts = [
            await _verdict(verifier, subject.case.task, answer)
            for verifier in (first, first, second)
        ]
        require(
            verdicts[0] == verdicts[1] == verdicts[2],
            f"the answer {_short(answer)} got {[_told(verdict) for verdict in verdicts]}",
        )


async def rollouts_judged_at_once_do_not_mix(subject: VerifierSubject) -> None:
    """Many concurrent calls on one instance give what single calls give."""
    verifier: Verifier = subject.build()
    answers = (*subject.case.gold, *subject.case.wrong) * 4
    task = subject.case.task
    alone = [(await _verdict(verifier, task, answer)).score for answer in answers]
    together = await asyncio.gather(*(_verdict(verifier, task, answer) for answer in answers))
    scores = [verdict.score for verdict in together]
    require(scores == alone, f"concurrent calls gave {scores} instead of {alone}")


async def inputs_are_not_changed(subject: VerifierSubject) -> None:
    """Task and messages are as they were."""
    task = copy.deepcopy(subject.case.task)
    rollout = rollout_of(task, subject.case.gold[0])
    before = copy.deepcopy((task, rollout.messages, rollout.info))
    await subject.build().verify(task, rollout)
    require((task, rollout.messages, rollout.info) == before, "the verifier changed its input")


class VerifierSuite(Suite):
    """Tries a verifier with ``VerifierCase``s."""

    kind = "verifier"
    checks = (
        gold_answers_score_one,
        wrong_answers_score_lower,
        hostile_answers_never_raise,
        a_rollout_without_an_answer_is_judged,
        model_text_is_never_evaluated,
        a_missing_field_is_never_a_score,
        deterministic_when_it_says_so,
        rollouts_judged_at_once_do_not_mix,
        inputs_are_not_changed,
    )


async def _verdict(verifier: Verifier, task: Task, answer: str) -> Verdict:
    return await verifier.verify(task, rollout_of(task, answer))


def _judged_in_time(subject: VerifierSubject, verifier: Verifier, rollout: Rollout) -> Verdict:
    """The verdict from a thread of its own: a verifier that blocks the loop is still caught."""
    limit_s, box = subject.case.answer_limit_s, dict[str, Any]()

    def judge() -> None:
        try:
            box["verdict"] = asyncio.run(verifier.verify(rollout.task, rollout))
        except BaseException as problem:  # noqa: BLE001 - handed to the caller, whatever it is
            box["problem"] = problem

    thread = threading.Thread(target=judge, daemon=True)
    thread.start()
    thread.join(limit_s)
    answer = _short(rollout.answer)
    if thread.is_alive():
        raise CheckFailed(f"no verdict on the answer {answer} after {limit_s:g} s")
    if problem := box.get("problem"):
        raise CheckFailed(
            f"the answer {answer} raised {type(problem).__name__}: {_short(str(problem))}"
        ) from problem
    verdict: Verdict = box["verdict"]
    return verdict


def _require_well_formed(verdict: Verdict, answer: str) -> None:
    if verdict.score is None:
        require(verdict.error, f"the answer {_short(answer)} got neither a score nor an error")
    else:
        require(
            math.isfinite(verdict.score),
            f"the answer {_short(answer)} got the score {verdict.score}",
        )


def _told(verdict: Verdict) -> str:
    error = f", error {_short(verdict.error)}" if verdict.error else ""
    return f"score {verdict.score}, passed {verdict.passed}{error}"


def _short(text: str) -> str:
    return ascii(text if len(text) <= 60 else f"{text[:57]}...")
