from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass

from axisrl.config.base import Config
from axisrl.config.fields import fields_of
from axisrl.config.losses import RatioLossConfig
from axisrl.config.schema import RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Base(Config):
    name: str
    """What it
    is called."""
    size: int = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Child(Base):
    parts: tuple[str, ...] = ("a",)
    """Its parts."""
    table: dict[str, int] = field(default_factory=dict)


def test_fields_come_in_order_with_types_and_defaults():
    found = [(info.name, info.type, info.default, info.required) for info in fields_of(Child)]
    assert found == [
        ("name", "str", None, True),
        ("size", "int", 3, False),
        ("parts", "tuple[str, ...]", ["a"], False),
        ("table", "dict[str, int]", {}, False),
    ]


def test_a_choice_is_told_whatever_name_it_goes_by():
    types = {info.name: info.type for info in fields_of(RatioLossConfig)}
    assert types["base"] == "Literal['old', 'rollout']"
    assert types["aggregation"].startswith("Literal['token_mean', ")


def test_help_is_the_docstring_below_a_field_in_one_line():
    helps = {info.name: info.help for info in fields_of(Child)}
    assert helps == {"name": "What it is called.", "size": "", "parts": "Its parts.", "table": ""}


def test_a_class_without_source_has_no_help():
    made = make_dataclass("Made", [("x", int, 1)])
    assert [(info.name, info.type, info.help) for info in fields_of(made)] == [("x", "int", "")]


def test_a_nested_section_has_its_defaults_as_plain_data():
    train = next(info for info in fields_of(RunConfig) if info.name == "train")
    assert train.default["updates"] == 100
