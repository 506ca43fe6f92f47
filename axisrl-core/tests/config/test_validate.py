from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from axisrl.config.base import Config, NoConfig
from axisrl.config.schema import RunConfig, Use
from axisrl.config.shape import plain
from axisrl.config.validate import schema_of, validate
from axisrl.errors import ConfigError

MINIMAL = {
    "model": "tiny",
    "dataset": "a/data",
    "env": "a/env",
    "advantage": "a/adv",
    "loss": "a/loss",
    "engine": "a/engine",
    "trainer": "a/trainer",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Optim(Config):
    """An optimizer."""

    lr: float = 1e-3
    """Step size."""
    betas: tuple[float, float] = (0.9, 0.95)
    kind: Literal["adam", "sgd"] = "adam"
    steps: int = 1
    label: str = ""

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise ValueError(f"lr {self.lr} is not above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outer(Config):
    optim: Optim = Optim()
    inner: Use | None = None
    either: int | list[int] = 0


def message_of(cls: type, options: dict[str, Any], **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(cls, options, **kwargs)
    return caught.value.message


def test_a_number_that_yaml_left_as_text_is_repaired():
    assert validate(Optim, {"lr": "1e-6"}).lr == 1e-6


def test_an_unknown_key_says_what_was_meant_and_where_it_came_from():
    message = message_of(
        Optim, {"lrr": 1}, path="engine.optim", origins={"engine.optim.lrr": "command line"}
    )
    assert message == "unknown key engine.optim.lrr; did you mean lr? (from command line)"


def test_a_component_without_options_takes_none():
    assert message_of(NoConfig, {"x": 1}, path="env") == "unknown key env.x"


def test_post_init_reasons_reach_the_user_with_the_path():
    assert message_of(Outer, {"optim": {"lr": -1}}, path="t") == "t.optim: lr -1.0 is not above 0"


def test_post_init_of_the_whole_has_no_path_to_name():
    assert message_of(Optim, {"lr": -1}) == "lr -1.0 is not above 0"


@pytest.mark.parametrize("value", [True, "true"])
def test_a_boolean_is_no_whole_number(value):
    assert "steps: expected a" in message_of(Optim, {"steps": value})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "inf", ".nan"])
def test_a_number_has_to_be_finite(value):
    message = message_of(Optim, {"lr": value})
    assert message.startswith("lr: ")


def test_a_choice_is_corrected():
    assert message_of(Optim, {"kind": "adm"}) == (
        "kind: 'adm' is not one of adam, sgd; did you mean adam?"
    )


def test_a_missing_key_is_named():
    tree = {key: value for key, value in MINIMAL.items() if key != "loss"}
    assert message_of(RunConfig, tree) == "loss is required in mode train: set loss"
    tree = {key: value for key, value in MINIMAL.items() if key != "env"}
    assert message_of(RunConfig, tree) == "env is required in mode train: set env"
    assert message_of(RunConfig, {**MINIMAL, "env": {"size": 3}}) == "env.use is required"


def test_a_number_where_text_belongs_is_told_to_be_quoted():
    with pytest.raises(ConfigError) as caught:
        validate(Optim, {"label": 12})
    assert caught.value.message == "label: expected a text, got 12"
    assert "quote" in caught.value.fix


def test_a_list_is_told_to_be_given_whole():
    with pytest.raises(ConfigError) as caught:
        validate(Optim, {"betas": {"0": 0.9}})
    assert caught.value.message.startswith("betas: expected a list")
    assert "whole" in caught.value.fix


def test_a_wrong_item_is_named_by_its_place():
    assert message_of(Optim, {"betas": [0.9, "x"]}) == "betas.1: expected a number, got 'x'"


def test_names_of_union_arms_do_not_reach_the_user():
    message = message_of(Outer, {"either": ["x"]})
    assert "either.0: expected a whole number, got 'x'" in message
    assert "list[int]" not in message


def test_every_problem_is_reported_at_once():
    message = message_of(Optim, {"lrr": 1, "steps": "x", "kind": "y"})
    assert message.startswith("3 problems")


def test_a_component_within_options_takes_the_short_form():
    assert validate(Outer, {"inner": "a/b"}).inner == Use(use="a/b")


def test_options_keep_their_values_beside_use():
    config = validate(RunConfig, {**MINIMAL, "env": {"use": "a/env", "size": 3}})
    assert config.env == Use(use="a/env", options={"size": 3})


def test_a_validated_config_reads_back_from_its_plain_form():
    config = validate(RunConfig, {**MINIMAL, "eval": {"dataset": "a/data"}, "placement": "ray"})
    assert validate(RunConfig, plain(config)) == config


def test_sizes_that_do_not_divide_name_both_numbers():
    tree = {**MINIMAL, "rollout": {"group_size": 3}, "train": {"batch_size": 8}}
    assert message_of(RunConfig, tree) == (
        "train.batch_size 8 is not a multiple of rollout.group_size 3"
    )


def test_the_schema_describes_what_is_written_in_yaml():
    schema = schema_of(RunConfig)
    definitions = schema["$defs"]
    assert definitions["Use"]["anyOf"][0] == {"type": "string"}
    assert definitions["ModelConfig"]["anyOf"][0] == {"type": "string"}
    group_size = definitions["RolloutConfig"]["properties"]["group_size"]
    assert group_size["description"] == "Rollouts of one task."
    assert schema["additionalProperties"] is False


def test_the_schema_of_a_component_has_help_texts():
    assert schema_of(Optim)["properties"]["lr"]["description"] == "Step size."
