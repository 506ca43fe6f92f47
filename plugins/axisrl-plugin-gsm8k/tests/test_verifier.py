"""gsm8k/math: right is 1, wrong is 0, nothing stated is no_answer, and a broken task raises."""

import asyncio
import json
import re

import pytest

from axisrl.errors import VerifierFailure
from axisrl.types import Task
from axisrl_gsm8k.config import MathVerifierConfig
from axisrl_gsm8k.verifier import MathVerifier


@pytest.fixture
def verdict(context, rollout_of):
    """Judges ``text`` against ``answer``."""

    def judge(text, answer="#### 18", mode="strict"):
        task = Task(id="t", data={"question": "?", "answer": answer})
        verifier = MathVerifier(MathVerifierConfig(mode=mode), context)
        return asyncio.run(verifier.verify(task, rollout_of(text, task)))

    return judge


@pytest.mark.parametrize(
    "text",
    ["#### 18", "####18", "#### $18.00", "#### 18%", "#### 18.", "9 + 9 = 18\n#### 18 apples"],
)
def test_the_right_number_scores_one(verdict, text):
    judged = verdict(text)
    assert (judged.score, judged.passed, judged.detail) == (1.0, True, "correct")


@pytest.mark.parametrize(("text", "gold"), [("#### 1234", "#### 1,234"), ("#### 0.5", "1/2")])
def test_numbers_are_compared_and_not_spellings(verdict, text, gold):
    assert verdict(text, gold).score == 1.0


def test_a_wrong_number_scores_zero_and_says_both(verdict):
    judged = verdict("#### 17")
    assert (judged.score, judged.passed) == (0.0, False)
    assert judged.detail == "wrong: 17, not 18"


def test_close_is_not_equal(verdict):
    assert verdict("#### 18.0000001").score == 0.0


def test_of_several_answers_the_last_counts(verdict):
    assert verdict("#### 18\nno, wait\n#### 17").score == 0.0
    assert verdict("#### 17\nno, wait\n#### 18").score == 1.0


@pytest.mark.parametrize("text", ["the answer is 18", "", None])
def test_without_the_marker_there_is_no_answer(verdict, text):
    judged = verdict(text)
    assert (judged.score, judged.detail, judged.error) == (0.0, "no_answer", None)


def test_the_marker_in_the_prompt_is_not_the_policys_answer(verdict):
    assert verdict("I do not know", "#### 999").score == 0.0


def test_a_stated_answer_that_is_no_number_is_named_so(verdict):
    assert verdict("#### eighteen").detail == "not_a_number"


@pytest.mark.parametrize("text", ["the answer is 18", "#### about eighteen, that is 18", "#### 18"])
def test_flexible_takes_the_last_number_when_the_marker_has_none(verdict, text):
    assert verdict(text, mode="flexible").score == 1.0
    assert verdict("only words", mode="flexible").detail == "no_answer"


def test_flexible_still_prefers_the_marker(verdict):
    assert verdict("#### 18\nThat took 5 minutes.", mode="flexible").score == 1.0


@pytest.mark.parametrize("data", [{}, {"answer": "#### unknown"}, {"answer": ""}, {"answer": None}])
def test_a_task_without_a_numeric_answer_raises_and_never_scores(context, rollout_of, data):
    verifier = MathVerifier(MathVerifierConfig(), context)
    with pytest.raises(VerifierFailure, match="task t"):
        asyncio.run(verifier.verify(Task(id="t", data=data), rollout_of("#### 18")))


@pytest.mark.parametrize(
    "text",
    [
        "#### __import__('os')._exit(1)",
        "#### 9**9**9**9",
        "#### 1e999999999",
        "#### " + "9" * 200_000,
        "#### 1/" + "0" * 200_000,
        "####" * 100_000,
        "#### \ud800\x00",
    ],
)
def test_hostile_answers_score_zero(verdict, text):
    assert verdict(text).score == 0.0
    assert verdict(text, mode="flexible").score == 0.0


def test_the_same_rollout_always_gets_the_same_verdict(verdict):
    assert len({verdict("#### 17", mode="flexible").detail for _ in range(5)}) == 1


def test_all_gsm8k_gold_answers_score_one_and_changed_ones_zero(context, rollout_of, gsm8k_folder):
    lines = [
        line
        for name in ("train", "test")
        for line in (gsm8k_folder / f"{name}.jsonl").read_text().splitlines()
    ]
    verifier = MathVerifier(MathVerifierConfig(), context)

    async def scores(change):
        found = []
        for index, line in enumerate(lines):
            task = Task(id=str(index), data=json.loads(line))
            rollout = rollout_of(change(task.data["answer"]), task)
            found.append((await verifier.verify(task, rollout)).score)
        return found

    assert asyncio.run(scores(lambda answer: answer)) == [1.0] * 8792
    assert asyncio.run(scores(lambda answer: answer.replace(",", ""))) == [1.0] * 8792
    assert asyncio.run(scores(lambda answer: f"{answer}\n#### 0.5")) == [0.0] * 8792
    changed = asyncio.run(scores(lambda answer: re.sub(r"#### ", "#### 1", answer)))
    assert set(changed) == {0.0}
