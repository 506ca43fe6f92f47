"""Tests of axisrl_megatron.config."""

import pytest

from axisrl_megatron.config import OWNED, MegatronConfig


@pytest.mark.parametrize("name", OWNED)
def test_an_option_that_the_trainer_sets_is_refused_with_its_place(name):
    with pytest.raises(ValueError, match=rf"megatron\.{name} cannot be set: {OWNED[name]}"):
        MegatronConfig(megatron={name: 1})


@pytest.mark.parametrize("attention", ["", "module", "module:", ":Class"])
def test_an_attention_that_is_no_class_is_refused(attention):
    with pytest.raises(ValueError, match="is not module:class"):
        MegatronConfig(attention=attention)


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"tensor": 0}, "tensor 0 must be >= 1"),
        ({"pipeline": 0}, "pipeline 0 must be >= 1"),
        ({"context": 0}, "context 0 must be >= 1"),
        ({"virtual": -1}, "virtual -1 must be >= 1"),
        ({"virtual": 2}, "virtual 2 needs pipeline above 1"),
        ({"sequence": True}, "sequence true needs tensor above 1"),
    ],
)
def test_sizes_that_divide_nothing_are_refused(sizes, told):
    with pytest.raises(ValueError, match=told):
        MegatronConfig(**sizes)


def test_an_activation_of_layers_that_are_not_taken_is_refused():
    with pytest.raises(ValueError, match="needs transformer_impl: transformer_engine"):
        MegatronConfig(megatron={"use_te_activation_func": True})


def test_options_of_every_trainer_are_checked():
    with pytest.raises(ValueError, match="lr"):
        MegatronConfig(lr=0.0)
