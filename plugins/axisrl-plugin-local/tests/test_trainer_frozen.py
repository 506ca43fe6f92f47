"""Tests of axisrl_local.trainer with a frozen model, and of what it refuses before and after."""

import numpy as np
import pytest

from axisrl.config.lora import LoraOptions
from axisrl.errors import EnvironmentProblem
from axisrl.testing.sequences import PullLoss, packed, random_samples


@pytest.mark.parametrize("attempt", ["step", "weight_update"])
def test_a_frozen_model_refuses_to_train(make_model, make_trainer, attempt):
    spec = make_model("llama")
    frozen = make_trainer(spec, total_steps=None)
    arguments = ([packed(random_samples(spec, 1))], PullLoss()) if attempt == "step" else (1,)
    with pytest.raises(EnvironmentProblem, match="a frozen model cannot"):
        getattr(frozen, attempt)(*arguments)


def test_a_frozen_model_holds_its_weights_once_and_no_gradient(make_model, make_trainer, tmp_path):
    spec = make_model("llama", dtype="bfloat16")
    frozen = make_trainer(spec, total_steps=None, lora=LoraOptions())
    assert not frozen._model.trained() and frozen._model.adapter is None
    assert frozen._training is None
    frozen.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "trainer.json"]


def test_a_frozen_model_may_be_float16(make_model, make_trainer):
    spec = make_model("llama", dtype="float16")
    batch = packed(random_samples(spec, 1))
    assert np.isfinite(make_trainer(spec, total_steps=None).logprobs([batch])[0]).all()


def test_a_model_in_training_takes_no_weights(make_model, make_trainer):
    trainer = make_trainer(make_model("llama"))
    with pytest.raises(EnvironmentProblem, match="does not take another's weights"):
        trainer.update_weights(trainer.weight_update(1))


def test_a_trainer_that_is_not_started_says_so(make_model, make_trainer):
    trainer = make_trainer(make_model("llama"))
    trainer.stop()
    for attempt in (lambda: trainer.logprobs([]), lambda: trainer.weight_update(1)):
        with pytest.raises(EnvironmentProblem, match="not started"):
            attempt()
