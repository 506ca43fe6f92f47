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


@pytest.mark.parametrize("name", ["tensor", "context"])
def test_a_size_below_one_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} 0 must be >= 1"):
        MegatronConfig(**{name: 0})


def test_one_rank_cannot_divide_the_tokens_of_its_layers():
    with pytest.raises(ValueError, match="sequence true needs tensor above 1"):
        MegatronConfig(sequence=True)


def test_options_of_every_trainer_are_checked():
    with pytest.raises(ValueError, match="lr"):
        MegatronConfig(lr=0.0)
