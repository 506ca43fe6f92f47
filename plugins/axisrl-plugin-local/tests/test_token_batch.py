"""Tests of axisrl.ops.token_batch."""

import dataclasses

import numpy as np
import pytest
import torch

from axisrl.errors import ConfigError
from axisrl.ops.token_batch import policy_inputs, token_batch, value_inputs
from axisrl.testing.sequences import packed, random_samples

CPU = torch.device("cpu")


@pytest.fixture
def batch(make_model):
    return packed(random_samples(make_model("llama"), 3))


def with_columns(batch, **columns):
    return dataclasses.replace(batch, columns={**batch.columns, **columns})


def test_only_labels_and_temperatures_of_trained_tokens_travel(batch):
    mask = batch.columns["loss_mask"]
    tokens = token_batch(batch, CPU)
    assert tokens.trained_M.tolist() == np.flatnonzero(mask).tolist()
    assert tokens.labels_M.tolist() == batch.columns["labels"][mask].tolist()
    assert len(tokens.temperature_M) == mask.sum()
    assert tokens.positions_N.tolist() == batch.positions.tolist()
    assert sum(tokens.rows.lengths) == batch.tokens


def test_a_batch_without_trained_tokens_is_none(batch):
    assert token_batch(with_columns(batch, loss_mask=np.zeros(batch.tokens, bool)), CPU) is None


def test_trained_values_return_to_their_places_with_their_gradient(batch):
    tokens = token_batch(batch, CPU)
    values = torch.arange(1.0, len(tokens.trained_M) + 1, requires_grad=True)
    full = tokens.full(values)
    assert torch.equal(full[tokens.trained_M], values)
    assert int((full != 0).sum()) == len(values)
    full.sum().backward()
    assert values.grad.tolist() == [1.0] * len(values)


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf])
def test_a_temperature_that_is_no_temperature_is_refused(batch, temperature):
    column = np.full(batch.tokens, temperature, np.float32)
    tokens = token_batch(with_columns(batch, temperature=column), CPU)
    with pytest.raises(ConfigError, match="temperature"):
        _ = tokens.temperature_M


def test_trajectories_are_int64_and_the_mask_is_bool(batch):
    tokens = token_batch(batch, CPU)
    zeros_N = torch.zeros(batch.tokens)
    inputs = policy_inputs(tokens, zeros_N, zeros_N, frozenset())
    assert (inputs.trajectory_N.dtype, inputs.mask_N.dtype) == (torch.int64, torch.bool)
    assert inputs.returns_N is None and inputs.values_N is None


def test_a_missing_column_is_named(batch):
    columns = {name: value for name, value in batch.columns.items() if name != "advantages"}
    tokens = token_batch(dataclasses.replace(batch, columns=columns), CPU)
    with pytest.raises(ConfigError, match="no column 'advantages'"):
        policy_inputs(tokens, torch.zeros(1), torch.zeros(1), frozenset())


def test_reference_logprobs_are_handed_over_only_where_they_are_needed(batch):
    given = np.linspace(-3, -1, batch.tokens, dtype=np.float32)
    tokens = token_batch(with_columns(batch, reference_logprobs=given), CPU)
    zeros_N = torch.zeros(batch.tokens)
    needed = policy_inputs(tokens, zeros_N, zeros_N, frozenset({"reference_logprobs"}))
    assert needed.reference_logprobs_N.tolist() == given.tolist()
    assert policy_inputs(tokens, zeros_N, zeros_N, frozenset()).reference_logprobs_N is None


def test_missing_reference_logprobs_are_named(batch):
    zeros_N = torch.zeros(batch.tokens)
    with pytest.raises(ConfigError, match="no column 'reference_logprobs'"):
        policy_inputs(token_batch(batch, CPU), zeros_N, zeros_N, frozenset({"reference_logprobs"}))


def test_a_value_loss_gets_values_old_values_and_returns_and_nan_for_logprobs(batch):
    given = np.linspace(-1, 1, batch.tokens, dtype=np.float32)
    tokens = token_batch(with_columns(batch, old_values=given, returns=2 * given), CPU)
    values_N = torch.ones(batch.tokens, requires_grad=True)
    inputs = value_inputs(tokens, values_N)
    assert inputs.values_N is values_N and bool(inputs.logprobs_N.isnan().all())
    assert not inputs.logprobs_N.requires_grad
    assert inputs.old_values_N.tolist() == given.tolist()
    assert inputs.returns_N.tolist() == (2 * given).tolist()
    assert inputs.entropy_N is None and inputs.old_logprobs_N is None
