"""Judges a rollout by its final answer, compared with the task's answer as exact numbers.

It does not reward format (:mod:`axisrl_gsm8k.reward`) and reads no boxed LaTeX beyond plain numbers
(:mod:`axisrl_gsm8k.boxed`). How text becomes a number is in :mod:`axisrl_gsm8k.answers`.
"""

from __future__ import annotations

from fractions import Fraction

from axisrl.errors import VerifierFailure
from axisrl.protocols import Rollout
from axisrl.types import BuildContext, Task, Verdict
from axisrl_gsm8k.answers import final_answer, last_number, parse_number
from axisrl_gsm8k.config import MathVerifierConfig


class MathVerifier:
    """Score 1 when the stated number equals the task's, else 0. Deterministic.

    ``detail`` is ``correct``, ``wrong: ...``, ``no_answer`` (nothing stated) or ``not_a_number``.
    """

    def __init__(self, config: MathVerifierConfig, context: BuildContext) -> None:
        self._flexible = config.mode == "flexible"

    async def verify(self, task: Task, rollout: Rollout) -> Verdict:
        """Raises ``VerifierFailure`` when the task has no numeric ``answer``."""
        gold = gold_number(task)
        stated = final_answer(rollout.answer)
        found = None if stated is None else parse_number(stated)
        if found is None and self._flexible:
            found = last_number(rollout.answer)
        if found is None:
            no_answer = stated is None or self._flexible
            return Verdict(score=0.0, detail="no_answer" if no_answer else "not_a_number")
        return compared(found, gold)


def gold_number(task: Task) -> Fraction:
    """The task's answer: what follows its ``####``, or the whole field."""
    if "answer" not in task.data:
        raise VerifierFailure(
            f"task {task.id} has no field 'answer'",
            fix="use a dataset whose tasks have 'question' and 'answer'",
        )
    answer = str(task.data["answer"])
    gold = parse_number(final_answer(answer) or answer)
    if gold is None:
        raise VerifierFailure(
            f"the answer of task {task.id} is not a number: {answer[-80:]!r}",
            fix="end the field 'answer' with '#### N'",
        )
    return gold


def compared(found: Fraction, gold: Fraction) -> Verdict:
    """The verdict on a number that was found."""
    if found == gold:
        return Verdict(score=1.0, passed=True, detail="correct")
    return Verdict(score=0.0, detail=f"wrong: {found}, not {gold}")
