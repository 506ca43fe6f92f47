"""Each check of VerifierSuite catches a verifier that breaks its promise."""

import asyncio
import contextlib
import itertools
import subprocess
import time

import pytest

from axisrl.config.base import NoConfig
from axisrl.plugins import VerifierComponent
from axisrl.testing import VerifierCase, VerifierSuite
from axisrl.testing import verifier as checks
from axisrl.testing.fakes import ExactVerifier
from axisrl.types import Task, Verdict

CASE = VerifierCase(
    use="sums/exact",
    task=Task(id="sum", data={"question": "1 + 1?", "answer": "2"}),
    gold=("2", " 2 "),
    wrong=("3", "two"),
    required=("answer",),
    answer_limit_s=0.5,
)
DETERMINISTIC = VerifierComponent(name="exact", target="sums:Exact")
NOISY = VerifierComponent(name="exact", target="sums:Exact", deterministic=False)


class Good(ExactVerifier):
    def __init__(self, context):
        super().__init__(NoConfig(), context)


class NeverRight(Good):
    async def verify(self, task, rollout):
        return Verdict(score=0.0)


class RightWithoutPassing(Good):
    async def verify(self, task, rollout):
        return Verdict(score=(await super().verify(task, rollout)).score)


class AlwaysRight(Good):
    async def verify(self, task, rollout):
        return Verdict(score=1.0, passed=True)


class ChokesOnEmpty(Good):
    async def verify(self, task, rollout):
        rollout.answer[0]
        return await super().verify(task, rollout)


class Hangs(Good):
    async def verify(self, task, rollout):
        if len(rollout.answer) > 10_000:
            await asyncio.Event().wait()
        return await super().verify(task, rollout)


class BlocksTheLoop(Good):
    async def verify(self, task, rollout):
        if len(rollout.answer) > 50_000:
            time.sleep(0.8)  # longer than the case allows, in a thread that then ends
        return await super().verify(task, rollout)


class ScoresNaN(Good):
    async def verify(self, task, rollout):
        verdict = await super().verify(task, rollout)
        return verdict if rollout.answer.strip() else Verdict(score=float("nan"))


class NeitherScoreNorError(Good):
    async def verify(self, task, rollout):
        verdict = await super().verify(task, rollout)
        return verdict if rollout.answer.strip() else Verdict(score=None)


class NeedsAnAnswer(Good):
    async def verify(self, task, rollout):
        said = [message for message in rollout.messages if message.role == "assistant"]
        return await super().verify(task, rollout) if said else said[0]


class EvaluatesPython(Good):
    async def verify(self, task, rollout):
        with contextlib.suppress(SyntaxError, NameError, ValueError, TypeError):
            eval(rollout.answer, {})
        return await super().verify(task, rollout)


class RunsAShell(Good):
    async def verify(self, task, rollout):
        subprocess.run(["sh", "-c", f'echo "{rollout.answer}"'], capture_output=True, check=False)
        return await super().verify(task, rollout)


class ScoresWithoutTheField(Good):
    async def verify(self, task, rollout):
        right = rollout.answer.strip() == task.data.get("answer")
        return Verdict(score=float(right), passed=right)


class Alternates(Good):
    turns = itertools.count()

    async def verify(self, task, rollout):
        right = next(self.turns) % 2 == 0
        return Verdict(score=float(right), passed=right)


class KeepsTheLastAnswer(Good):
    async def verify(self, task, rollout):
        self.answer = rollout.answer.strip()
        await asyncio.sleep(0)
        right = self.answer == task.data["answer"]
        return Verdict(score=float(right), passed=right)


class ChangesTheTask(Good):
    async def verify(self, task, rollout):
        verdict = await super().verify(task, rollout)
        task.data["seen"] = True
        return verdict


BROKEN = [
    (checks.gold_answers_score_one, NeverRight, r"gold answer '2' got score 0\.0"),
    (checks.gold_answers_score_one, RightWithoutPassing, "passed False"),
    (checks.wrong_answers_score_lower, AlwaysRight, r"wrong answer '3' got score 1\.0"),
    (checks.hostile_answers_never_raise, ChokesOnEmpty, "'' raised IndexError"),
    (
        checks.hostile_answers_never_raise,
        Hangs,
        r"no verdict on the answer '9+\.\.\.' after 0\.5 s",
    ),
    (checks.hostile_answers_never_raise, BlocksTheLoop, "no verdict"),
    (checks.hostile_answers_never_raise, ScoresNaN, "score nan"),
    (checks.hostile_answers_never_raise, NeitherScoreNorError, "neither a score nor an error"),
    (checks.hostile_answers_never_raise, AlwaysRight, "passed"),
    (checks.a_rollout_without_an_answer_is_judged, NeedsAnAnswer, "raised IndexError"),
    (checks.a_rollout_without_an_answer_is_judged, AlwaysRight, "without an answer passed"),
    (checks.model_text_is_never_evaluated, EvaluatesPython, "__import__.* was executed"),
    (checks.model_text_is_never_evaluated, RunsAShell, "touch .* was executed"),
    (checks.a_missing_field_is_never_a_score, ScoresWithoutTheField, "without 'answer' it still"),
    (checks.deterministic_when_it_says_so, Alternates, "the answer '2' got"),
    (checks.rollouts_judged_at_once_do_not_mix, KeepsTheLastAnswer, "concurrent calls gave"),
    (checks.inputs_are_not_changed, ChangesTheTask, "changed its input"),
]


def test_a_good_verifier_passes_every_check(trial):
    trial.passes(VerifierSuite, CASE, Good, DETERMINISTIC)


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_verifier_is_caught(trial, check, make, told):
    trial.fails(check, CASE, make, told, DETERMINISTIC)


def test_every_check_catches_something():
    assert {check for check, _, _ in BROKEN} == set(VerifierSuite.checks)


def test_a_verifier_that_says_it_is_noisy_may_be(trial):
    skips = [checks.deterministic_when_it_says_so]
    trial.passes(VerifierSuite, CASE, Good, NOISY, skips=skips)


def test_a_verifier_that_reports_a_missing_field_as_an_error_keeps_its_promise(trial):
    class Reports(Good):
        async def verify(self, task, rollout):
            if "answer" not in task.data:
                return Verdict(score=None, error="no field 'answer'")
            return await super().verify(task, rollout)

    trial(checks.a_missing_field_is_never_a_score, CASE, Reports)
