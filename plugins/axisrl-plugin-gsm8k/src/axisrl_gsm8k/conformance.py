"""Inputs with which the components of this plugin are tried (:mod:`axisrl.testing`)."""

from __future__ import annotations

import json

from axisrl.testing.cases import DatasetCase, EnvCase, RewardCase, VerifierCase
from axisrl.types import Task, Verdict

_SUM = Task(id="sum", data={"question": "What is 700 + 525?", "answer": "700 + 525.\n#### 1,225"})
_LOSS = Task(id="loss", data={"question": "What is 4 - 7?", "answer": "#### -3"})
_FIELDS = ("question", "answer")
_RIGHT, _WRONG = Verdict(score=1.0, passed=True), Verdict(score=0.0)
_ROWS = "".join(
    json.dumps({"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"}) + "\n"
    for n in range(5)
)

CASES = [
    EnvCase(use="gsm8k/math", task=_SUM, actions=("#### 1225",), required=("question",)),
    EnvCase(
        use="gsm8k/math",
        label="examples",
        options={"system": "Be brief.", "examples": "builtin", "example_style": "text"},
        task=_SUM,
        actions=("I do not know.",),
        required=("question",),
    ),
    VerifierCase(
        use="gsm8k/math",
        task=_SUM,
        gold=("#### 1225", "It is 1 + 1.\n#### $1,225.00", "#### 3\n#### 1225."),
        wrong=("#### 1226", "1225", "#### 1225\n#### 7", "#### twelve"),
        required=("answer",),
    ),
    VerifierCase(
        use="gsm8k/math",
        label="negative",
        task=_LOSS,
        gold=("#### -3", "#### -3.0"),
        wrong=("#### 3",),
        required=("answer",),
    ),
    VerifierCase(
        use="gsm8k/math",
        label="flexible",
        options={"mode": "flexible"},
        task=_SUM,
        gold=("#### 1225", "so the answer is 1,225."),
        wrong=("so the answer is 1,226.", "no idea"),
        required=("answer",),
    ),
    VerifierCase(
        use="gsm8k/boxed",
        task=_SUM,
        gold=("\\boxed{1225}", "\\boxed{\\frac{2450}{2}}"),
        wrong=("\\boxed{1226}", "1225", "\\boxed{\\frac{2450}{3}}"),
        required=("answer",),
        answer_limit_s=20.0,
    ),
    RewardCase(use="gsm8k/format", verdicts={"correct": _RIGHT}, worse={"correct": _WRONG}),
    DatasetCase(
        use="gsm8k/gsm8k",
        options={"source": "{folder}/train.jsonl"},
        files={"train.jsonl": _ROWS},
        fields=_FIELDS,
    ),
    DatasetCase(use="gsm8k/arithmetic", options={"size": 50}, fields=_FIELDS),
]
