from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

from axisrl.config.base import Config
from axisrl.config.schema import RunConfig, SamplingConfig, Use
from axisrl.config.shape import arms_of, expand, keys_named, leaves, plain, prepare


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair(Config):
    both: tuple[int, float] = (1, 1.0)
    many: list[float] | None = None
    either: int | str = 0
    flag: bool = False
    part: SamplingConfig | None = None
    by_name: dict[str, float] | None = None


def problems_of(value: dict) -> list[str]:
    return [problem.message for problem in prepare(Pair, value)[1]]


def test_short_forms_are_written_out_at_every_depth():
    tree = expand(
        RunConfig,
        {
            "env": "a/b",
            "model": "tiny",
            "placement": "ray",
            "verifiers": {"v": "a/v"},
            "loggers": ["core/jsonl"],
            "eval": {"dataset": "a/d"},
        },
    )
    assert tree == {
        "env": {"use": "a/b"},
        "model": {"name": "tiny"},
        "placement": {"kind": "ray"},
        "verifiers": {"v": {"use": "a/v"}},
        "loggers": [{"use": "core/jsonl"}],
        "eval": {"dataset": {"use": "a/d"}},
    }


def test_expanding_keeps_what_it_does_not_know():
    tree = {"env": {"use": "a/b", "x": 1}, "nonsense": {"y": 2}, "train": 3}
    assert expand(RunConfig, tree) == tree


def test_expanding_twice_is_expanding_once():
    once = expand(RunConfig, {"env": "a/b", "loggers": ["x", {"use": "y", "z": 1}]})
    assert expand(RunConfig, once) == once


def test_options_are_nested_for_validation():
    prepared, problems = prepare(RunConfig, {"env": {"use": "a/b", "use_tools": True}})
    assert prepared == {"env": {"use": "a/b", "options": {"use_tools": True}}}
    assert problems == []


def test_true_is_not_a_number():
    assert problems_of({"both": [True, 1.0]}) == ["both.0: expected a number, got true"]
    assert problems_of({"many": [1.0, False]}) == ["many.1: expected a number, got false"]
    assert problems_of({"by_name": {"a": True}}) == ["by_name.a: expected a number, got true"]


def test_true_is_true_where_a_flag_belongs():
    assert problems_of({"flag": True}) == []


def test_numbers_that_are_not_finite_are_found_even_as_text():
    assert problems_of({"both": [1, float("inf")]}) == ["both.1: inf is not a finite number"]
    assert problems_of({"part": {"top_p": "nan"}}) == ["part.top_p: nan is not a finite number"]


def test_text_may_say_nan_where_text_belongs():
    assert problems_of({"either": "nan"}) == []


def test_an_unknown_key_names_the_nearest_one():
    assert problems_of({"part": {"temprature": 1}}) == [
        "unknown key part.temprature; did you mean temperature?"
    ]


def test_a_key_of_another_section_is_pointed_to():
    _, problems = prepare(RunConfig, {"train": {"group_size": 4}})
    assert problems[0].message == "unknown key train.group_size; did you mean rollout.group_size?"


def test_plain_undoes_dataclasses_tuples_enums_and_paths():
    value = {"a": (Colour.RED, Path("x/y")), "b": Use(use="a/b", options={"c": (1,)})}
    assert plain(value) == {"a": ["red", "x/y"], "b": {"use": "a/b", "c": [1]}}


def test_plain_sorts_sets_so_that_files_do_not_change_by_chance():
    assert plain(frozenset({"b", "a"})) == ["a", "b"]


def test_leaves_are_values_and_empty_mappings():
    assert list(leaves({"a": {"b": 1, "c": {}}, "d": [{}]})) == ["a.b", "a.c", "d"]


def test_annotated_and_unions_are_looked_through():
    assert arms_of(Annotated[int | None, "x"]) == (int, type(None))


def test_keys_are_found_by_their_last_part():
    assert keys_named(RunConfig, "every") == ["eval.every", "checkpoint.every"]
