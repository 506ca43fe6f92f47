"""Tests of axisrl.config.training."""

import pytest

from axisrl.config.training import TrainingOptions


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
        {"bucket_mib": 0},
        {"transfer_timeout_s": 0.0},
    ],
    ids=str,
)
def test_an_option_that_cannot_work_is_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        TrainingOptions(**options)
