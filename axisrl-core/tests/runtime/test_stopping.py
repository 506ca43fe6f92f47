"""Tests of axisrl.runtime.stopping."""

import pytest

from axisrl.runtime.stopping import StopRule

PIECES = ["<s>", "He", "llo", " wor", "ld", "\ufffd", "é", "!"]


def decode(ids):
    """Pieces by id; ids 5 and 5 together are one character, as bytes of UTF-8 are."""
    return "".join(PIECES[token] for token in ids).replace("\ufffd\ufffd", "ü")


def ends(tokens, *strings, ids=(), before=()):
    rule = StopRule(frozenset(ids), strings, decode, before)
    return next((n for n, token in enumerate(tokens) if rule.stops(token)), None)


def test_a_stop_token_needs_no_tokenizer():
    rule = StopRule(frozenset({4}), (), decode)
    assert [rule.stops(token) for token in (3, 4)] == [False, True]


@pytest.mark.parametrize(
    ("stop", "at"), [("llo w", 2), ("H", 0), ("world", 3), ("lo worl", 3), ("xyz", None)]
)
def test_a_stop_string_ends_at_the_token_that_completes_it(stop, at):
    assert ends([1, 2, 3, 4], stop) == at


def test_any_of_several_stop_strings_ends_it():
    assert ends([1, 2, 3, 4], "never", "ld", "o w") == 2


def test_a_stop_string_may_be_a_special_token():
    assert ends([1, 0, 2], "<s>") == 1


def test_a_character_of_several_tokens_is_seen_when_it_is_complete():
    assert ends([1, 5, 5, 2], "ü") == 2
    assert ends([1, 5, 5, 2], "eü") == 2
    assert ends([1, 5, 5, 2], "ül") == 3


def test_a_resumed_request_remembers_the_text_before():
    assert ends([4, 2], "world", before=[1, 2, 3]) == 0
    assert ends([2], "lo", before=[1]) == 0


def test_a_single_character_stop_is_found_once_it_comes():
    assert ends([1, 2, 7], "!") == 2


def test_an_empty_stop_string_stops_nothing():
    assert ends([1, 2], "") is None
