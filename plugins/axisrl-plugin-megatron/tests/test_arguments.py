"""Tests of axisrl_megatron.arguments, on a class of its own and on Megatron's."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pytest

from axisrl.errors import ConfigError
from axisrl_megatron.arguments import checked


class Color(enum.Enum):
    RED = "red"


@dataclass
class Options:
    size: int = 1
    share: float | None = None
    kind: Literal["a", "b"] = "a"
    names: list[str] | None = None
    color: Color = Color.RED
    call: Callable[[], None] | None = None
    _hidden: int = 0


def test_values_that_fit_come_back():
    given = {"size": 2, "share": 0.5, "kind": "b", "names": ["x"]}
    assert checked(given, Options, "trainer.megatron") == given


def test_an_unknown_name_is_told_with_the_nearest():
    with pytest.raises(ConfigError, match=r"trainer\.megatron\.sice: .*did you mean size\?"):
        checked({"sice": 1}, Options, "trainer.megatron")


def test_a_hidden_field_is_no_option():
    with pytest.raises(ConfigError, match="no such option"):
        checked({"_hidden": 1}, Options, "trainer.megatron")


@pytest.mark.parametrize(
    ("name", "value"),
    [("size", "2"), ("size", True), ("share", "much"), ("kind", "c"), ("names", [1])],
)
def test_a_value_of_another_type_is_told_with_its_place(name, value):
    with pytest.raises(ConfigError, match=rf"trainer\.megatron\.{name}: .* does not fit"):
        checked({name: value}, Options, "trainer.megatron")


@pytest.mark.needs("megatron")
def test_every_scalar_option_of_megatron_can_be_set_to_its_default():
    import dataclasses

    from megatron.core.transformer import TransformerConfig

    defaults = {
        item.name: item.default
        for item in dataclasses.fields(TransformerConfig)
        if isinstance(item.default, bool | int | float | str) and not item.name.startswith("_")
    }
    assert len(defaults) > 100
    assert checked(defaults, TransformerConfig, "x") == defaults


@pytest.mark.needs("megatron")
@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"recompute_granularity": "some"}, "does not fit"),
        ({"recompute_granularitty": "full"}, "did you mean recompute_granularity"),
        ({"recompute_granularity": "full", "recompute_num_layers": "1"}, "does not fit"),
    ],
)
def test_a_wrong_option_of_megatron_is_told(option, told):
    from megatron.core.transformer import TransformerConfig

    with pytest.raises(ConfigError, match=told):
        checked(option, TransformerConfig, "trainer.megatron")
