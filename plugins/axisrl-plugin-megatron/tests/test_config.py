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


def test_options_of_every_trainer_are_checked():
    with pytest.raises(ValueError, match="lr"):
        MegatronConfig(lr=0.0)
