import dataclasses

import pytest

from axisrl.builtin.samples import completion, due, pick, prompt, shown
from axisrl.types import Message


def test_the_first_update_always_shows():
    assert [step for step in range(8) if due(step, 3)] == [1, 4, 7]
    assert [step for step in range(4) if due(step, 1)] == [0, 1, 2, 3]


def test_samples_span_the_rewards(make_row):
    rows = [make_row(member=n, reward=n / 4) for n in range(5)]
    assert [row.summary.reward for row in pick(rows, 1)] == [1.0]
    assert [row.summary.reward for row in pick(rows, 3)] == [1.0, 0.5, 0.0]
    assert [row.summary.reward for row in pick(rows, 9)] == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert pick([], 3) == []


def test_a_rollout_without_a_reward_comes_last_and_ties_keep_their_order(make_row):
    rows = [make_row(member=0, reward=None), make_row(member=2, reward=0.0), make_row(member=1)]
    assert [row.summary.member for row in pick(rows, 3)] == [1, 2, 0]
    same = [make_row(member=n) for n in (3, 1, 2)]
    assert [row.summary.member for row in pick(same, 3)] == [1, 2, 3]


def test_long_text_keeps_both_ends():
    text = shown("a" * 100 + "b" * 100, 30)
    assert text.startswith("a" * 20 + " [... 170 characters") and text.endswith("b" * 10)
    assert shown("short", 30) == "short"


@pytest.mark.parametrize("bad", ["\x1b[2J", "\x07", "\x9b31m", "\u202e", "\x00", "\r"])
def test_model_text_cannot_steer_the_terminal(bad):
    assert bad[0] not in shown(f"a{bad}b", 100)


def test_lines_and_tabs_stay():
    assert shown("a\r\n\tb\n", 100) == "a\n\tb\n"


def test_prompt_and_completion_are_told_apart_by_role(make_row):
    row = make_row(question="q", answer="a")
    later = (Message(role="tool", content="t"), Message(role="assistant", content="b"))
    row = dataclasses.replace(row, messages=row.messages + later)
    assert (prompt(row), completion(row)) == ("q", "a\n---\nb")


def test_a_rollout_in_which_nobody_spoke_has_its_last_message_as_prompt(make_row):
    silent = dataclasses.replace(make_row(), messages=(Message(role="user", content="hi"),))
    assert (prompt(silent), completion(silent)) == ("hi", "")
    empty = dataclasses.replace(make_row(), messages=())
    assert (prompt(empty), completion(empty)) == ("", "")
