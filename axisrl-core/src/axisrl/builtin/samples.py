"""Rollouts for human eyes: which of a step to show, and text that is safe to show.

It prints nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from axisrl.types import RolloutRow

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def due(step: int, every: int) -> bool:
    """True for steps 1, 1 + every, 1 + 2 every, ...: the first update always shows."""
    return step % every == 1 % every


def pick(rows: Sequence[RolloutRow], count: int) -> list[RolloutRow]:
    """``count`` rows from the best reward to the worst, evenly spread; a single one is the best."""
    ranked = sorted(rows, key=_rank)
    if count >= len(ranked):
        return ranked
    if count == 1:
        return ranked[:1]
    return [ranked[at * (len(ranked) - 1) // (count - 1)] for at in range(count)]


def shown(text: str, limit: int) -> str:
    """At most ``limit`` characters, without terminal control codes: model text is data.

    Longer text keeps its beginning and its end, where questions and answers are.
    """
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail]} [... {len(text) - limit} characters ...] {text[-tail:]}"


def completion(row: RolloutRow) -> str:
    """What the policy said, turn by turn."""
    said = [message.content for message in row.messages if message.role == "assistant"]
    return "\n---\n".join(said)


def prompt(row: RolloutRow) -> str:
    """The last thing said before the policy first spoke."""
    for before, message in zip(row.messages, row.messages[1:], strict=False):
        if message.role == "assistant":
            return before.content
    return row.messages[-1].content if row.messages else ""


def _rank(row: RolloutRow) -> tuple[float, int, int]:
    reward = row.summary.reward
    worth = float("inf") if reward is None else -reward
    return worth, row.summary.group, row.summary.member
