"""Tests of axisrl.ops.micro_batch. Its passes over real models are the trainers' tests."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from axisrl.errors import ConfigError
from axisrl.ops.micro_batch import add_gradients, check_loss, logprob_answers, value_answers
from axisrl.ops.step_totals import StepTotals
from axisrl.testing.sequences import PullLoss
from axisrl.types import ModelSpec, PackedBatch

CPU = torch.device("cpu")
POLICY = ModelSpec(name="policy", path=Path("policy"))
VALUE = ModelSpec(name="value", path=Path("value"), head="value")


def batch(mask):
    n = len(mask)
    columns = {
        "ids": np.arange(n, dtype=np.int32),
        "labels": np.arange(n, dtype=np.int32),
        "loss_mask": np.array(mask, bool),
        "weights": np.where(mask, 0.5, np.nan).astype(np.float32),
        "advantages": np.ones(n, np.float32),
        "rollout_logprobs": np.zeros(n, np.float32),
        "temperature": np.ones(n, np.float32),
        "trajectory": np.zeros(n, np.int32),
    }
    return PackedBatch(
        rank=0,
        rows=(0,),
        row_starts=np.array([0, n], np.int32),
        positions=np.arange(n, dtype=np.int32),
        columns=columns,
    )


class Model:
    """Every log-probability is its one parameter."""

    device = CPU

    def __init__(self, spec=POLICY):
        self.spec = spec
        self.parameter = torch.nn.Parameter(torch.tensor(-2.0))

    def logprobs(self, tokens, *, entropy=False):
        found_M = self.parameter.expand(len(tokens.labels_M))
        return found_M, torch.zeros_like(found_M)


@pytest.mark.parametrize(
    ("spec", "needs"),
    [(VALUE, frozenset()), (POLICY, {"values"}), (POLICY, {"routing"})],
    ids=["a policy's", "a value model's", "unknown needs"],
)
def test_a_loss_of_the_wrong_kind_is_refused(spec, needs):
    with pytest.raises(ConfigError):
        check_loss(SimpleNamespace(needs=frozenset(needs)), spec, frozenset({"values"}))


def test_a_loss_may_need_what_arrives_with_the_batch():
    check_loss(SimpleNamespace(needs=frozenset({"reference_logprobs"})), POLICY, frozenset())


def test_answers_are_at_trained_tokens_and_have_no_gradient():
    model = Model()
    batches = [batch([True, False, True]), batch([False])]
    first, second = logprob_answers(model, batches)
    assert first.tolist() == [-2, 0, -2] and second.tolist() == [0]


def test_a_model_answers_only_for_what_it_has_a_head_for():
    with pytest.raises(ConfigError, match="no log-probabilities"):
        logprob_answers(Model(VALUE), [batch([True])])
    with pytest.raises(ConfigError, match="no value head"):
        value_answers(Model(POLICY), [batch([True])])


def test_a_gradient_is_that_of_the_numerators_under_their_weights():
    model, totals = Model(), StepTotals()
    add_gradients(model, [batch([True, False, True]), batch([False])], PullLoss(), totals)
    assert model.parameter.grad == pytest.approx(-1.0)
    assert (totals.trained, totals.tokens) == (2, 4)
