"""Tests of axisrl.config.lora."""

import pytest

from axisrl.config.lora import LoraOptions
from axisrl.errors import ConfigError

LINEAR = ["model.layers.0.mlp.up_proj", "model.layers.0.self_attn.q_proj"]


@pytest.mark.parametrize(
    "options",
    [{"rank": 0}, {"alpha": 0.0}, {"dropout": 1.0}, {"targets": ()}],
    ids=str,
)
def test_an_adapter_option_that_cannot_work_is_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        LoraOptions(**options)


def test_every_layer_gets_one_unless_some_are_named_by_the_ends_of_their_names():
    assert LoraOptions().chosen(LINEAR) == LINEAR
    assert LoraOptions(targets=("mlp.up_proj",)).chosen(LINEAR) == LINEAR[:1]
    assert LoraOptions(targets=("q_proj", LINEAR[0])).chosen(LINEAR) == LINEAR


@pytest.mark.parametrize("target", ["proj", "q_pro", "lm_head"])
def test_a_target_that_is_no_layer_is_told_with_those_that_are(target):
    with pytest.raises(ConfigError, match=f"no linear layer '{target}'") as caught:
        LoraOptions(targets=(target,)).chosen(LINEAR)
    assert "choose from q_proj, up_proj" in caught.value.fix
