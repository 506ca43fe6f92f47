"""Tests of axisrl_local.trainer_config."""

import pytest

from axisrl_local.trainer_config import LoraOptions, TrainerConfig


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.0},
        {"eps": 0.0},
        {"betas": (0.9, 1.0)},
        {"min_lr_ratio": 1.5, "schedule": "linear"},
        {"min_lr_ratio": 0.1},
        {"warmup_steps": -1},
        {"weight_decay": -0.1},
        {"max_grad_norm": -1.0},
        {"chunk_tokens": 0},
        {"kept_logits_mib": -1},
    ],
    ids=str,
)
def test_an_option_that_cannot_work_is_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        TrainerConfig(**options)


@pytest.mark.parametrize(
    "options",
    [{"rank": 0}, {"alpha": 0.0}, {"dropout": 1.0}, {"targets": ()}],
    ids=str,
)
def test_an_adapter_option_that_cannot_work_is_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        LoraOptions(**options)
