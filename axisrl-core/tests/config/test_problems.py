from __future__ import annotations

import pytest

from axisrl.config.problems import Problem, nearest, raise_problems
from axisrl.errors import ConfigError


def test_no_problem_raises_nothing():
    raise_problems([], {})


def test_one_problem_is_one_line_with_its_origin():
    with pytest.raises(ConfigError) as caught:
        raise_problems([Problem("a.b", "a.b is odd", "make it even")], {"a.b": "command line"})
    assert caught.value.message == "a.b is odd (from command line)"
    assert caught.value.fix == "make it even"


def test_several_problems_are_all_listed_and_a_fix_is_said_once():
    found = [Problem("a", "a is odd", "even!"), Problem("b", "b is odd", "even!")]
    with pytest.raises(ConfigError) as caught:
        raise_problems(found, {"b": "my.yaml"})
    assert caught.value.message.splitlines() == [
        "2 problems in the configuration:",
        "  - a is odd",
        "  - b is odd (from my.yaml)",
    ]
    assert caught.value.fix == "even!"


def test_a_finding_about_two_keys_says_where_each_was_set():
    found = Problem("", "train.batch_size 3 is not a multiple of rollout.group_size 2")
    with pytest.raises(ConfigError) as caught:
        raise_problems(
            [found], {"rollout.group_size": "command line", "train.batch_size": "recipe x"}
        )
    assert caught.value.fix == (
        "change rollout.group_size (from command line) or train.batch_size (from recipe x)"
    )


def test_a_section_comes_from_where_all_of_it_was_set():
    origins = {"store.use": "command line", "store.folder": "recipe x", "trian.a": "file"}
    with pytest.raises(ConfigError, match=r"store is odd$"):
        raise_problems([Problem("store", "store is odd")], origins)
    with pytest.raises(ConfigError, match=r"trian is odd \(from file\)"):
        raise_problems([Problem("trian", "trian is odd")], origins)


def test_nothing_is_suggested_for_a_word_that_is_like_none():
    assert nearest("zzz", ["alpha", "beta"]) == ""
    assert nearest("alpa", ["alpha", "beta"]) == "alpha"
