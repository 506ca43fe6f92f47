"""gsm8k/boxed: numbers at once, other LaTeX in a worker that can be killed."""

import asyncio

import pytest

pytest.importorskip("math_verify", reason="needs the extra axisrl-plugin-gsm8k[boxed]")
pytest.importorskip("pebble", reason="needs the extra axisrl-plugin-gsm8k[boxed]")

from axisrl.types import Task
from axisrl_gsm8k.boxed import BoxedVerifier, last_boxed
from axisrl_gsm8k.config import BoxedVerifierConfig


def judge(context, rollout_of, text, gold, timeout_s=60.0):
    task = Task(id="t", data={"answer": gold})
    verifier = BoxedVerifier(BoxedVerifierConfig(timeout_s=timeout_s), context)
    return asyncio.run(verifier.verify(task, rollout_of(text, task)))


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("\\boxed{18}", "18"),
        ("\\boxed{1} then \\boxed{ 2 }", "2"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{18", None),
        ("\\boxed{}", None),
        ("boxed 18", None),
    ],
)
def test_the_last_balanced_box_is_the_answer(text, content):
    assert last_boxed(text) == content


def test_a_plain_number_is_compared_without_a_worker(context, rollout_of):
    assert judge(context, rollout_of, "\\boxed{1{,}234}", "#### 1,234").score == 1.0
    assert judge(context, rollout_of, "\\boxed{17}", "#### 18").score == 0.0


def test_without_a_box_there_is_no_answer(context, rollout_of):
    assert judge(context, rollout_of, "#### 18", "#### 18").detail == "no_answer"


def test_a_huge_box_is_not_handed_to_the_worker(context, rollout_of):
    text = "\\boxed{" + "x+" * 10_000 + "x}"
    assert judge(context, rollout_of, text, "#### 18").detail == "not_a_number"


def test_a_latex_expression_is_compared_symbolically(context, rollout_of):
    assert judge(context, rollout_of, "\\boxed{\\frac{1}{2}}", "#### 0.5").score == 1.0
    assert judge(context, rollout_of, "\\boxed{\\frac{1}{3}}", "#### 0.5").score == 0.0


def test_a_comparison_that_does_not_end_is_an_error_and_the_next_one_is_judged(context, rollout_of):
    async def judge_both():
        verifier = BoxedVerifier(BoxedVerifierConfig(timeout_s=2.0), context)
        task = Task(id="t", data={"answer": "#### 0.5"})
        endless = await verifier.verify(task, rollout_of("\\boxed{9^{9^{9}}}", task))
        return endless, await verifier.verify(task, rollout_of("\\boxed{\\frac{1}{2}}", task))

    endless, next_one = asyncio.run(judge_both())
    assert endless.score is None
    assert "no verdict within 2.0 s" in endless.error
    assert next_one.score == 1.0
