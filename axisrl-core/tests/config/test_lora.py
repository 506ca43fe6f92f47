"""Tests of axisrl.config.lora."""

import pytest

from axisrl.config.lora import LoraOptions


@pytest.mark.parametrize(
    "options",
    [{"rank": 0}, {"alpha": 0.0}, {"dropout": 1.0}, {"targets": ()}],
    ids=str,
)
def test_an_adapter_option_that_cannot_work_is_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        LoraOptions(**options)
