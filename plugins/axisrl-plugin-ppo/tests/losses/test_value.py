"""ppo/value against golden values, an independent float64 reference, and poisoned positions."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from axisrl.protocols import LossInputs
from axisrl.types import BuildContext
from axisrl_ppo.config import ValueLossConfig
from axisrl_ppo.losses.value import ValueLoss

CONTEXT = BuildContext(run_dir=Path("unused"))


def make_inputs(values, old, returns, mask=None, dtype=torch.float64):
    def tensor(column):
        return torch.tensor(np.asarray(column), dtype=dtype)

    nothing = tensor([float("nan")] * len(values))
    return LossInputs(
        logprobs_N=nothing,
        mask_N=torch.tensor([True] * len(values) if mask is None else list(mask)),
        advantages_N=nothing,
        rollout_logprobs_N=nothing,
        trajectory_N=torch.zeros(len(values), dtype=torch.int64),
        values_N=tensor(values).requires_grad_(),
        old_values_N=tensor(old),
        returns_N=tensor(returns),
    )


def run(inputs, **options):
    result = ValueLoss(ValueLossConfig(**options), CONTEXT)(inputs)
    gradient = torch.autograd.grad(result.per_token_N.sum(), inputs.values_N)[0]
    return result, gradient


def reference(values, old, returns, mask, clip, coef):
    """Value and gradient a token, by where v stands, in float64."""
    losses, gradients = [], []
    for v, o, target, keep in zip(values, old, returns, mask, strict=True):
        loss, slope = (v - target) ** 2, 2 * (v - target)
        if clip is not None and abs(v - o) > clip:
            edge = o + clip if v > o else o - clip
            if (edge - target) ** 2 > loss:
                loss, slope = (edge - target) ** 2, 0.0
        losses.append(coef * loss if keep else 0.0)
        gradients.append(coef * slope if keep else 0.0)
    return np.array(losses), np.array(gradients)


def test_value_1_5_from_1_0_towards_2_0_loses_0_64_clipped_and_0_25_unclipped():
    inputs = make_inputs([1.5], [1.0], [2.0])
    result, gradient = run(inputs, clip=0.2)
    assert result.per_token_N.item() == pytest.approx(0.64)
    assert gradient.item() == 0.0
    result, gradient = run(inputs, clip=None)
    assert result.per_token_N.item() == pytest.approx(0.25)
    assert gradient.item() == pytest.approx(-1.0)


def test_value_1_3_from_1_0_away_from_0_loses_1_69():
    result, gradient = run(make_inputs([1.3], [1.0], [0.0]), clip=0.2)
    assert result.per_token_N.item() == pytest.approx(1.69)
    assert gradient.item() == pytest.approx(2.6)


def test_the_coefficient_scales_the_loss_and_not_what_is_logged():
    inputs = make_inputs([1.3], [1.0], [0.0])
    result, gradient = run(inputs, coef=0.5)
    assert result.per_token_N.item() == pytest.approx(0.845)
    assert gradient.item() == pytest.approx(1.3)
    assert result.stats["squared_error"].values_N.item() == pytest.approx(1.69)


def test_the_statistics_give_the_clip_fraction_and_the_explained_variance():
    values, returns = np.array([1.5, 0.0, 2.0, 1.0]), np.array([2.0, 0.0, 2.5, 1.0])
    result, _ = run(make_inputs(values, [1.0, 0.0, 2.0, 1.0], returns))
    mean = {name: stat.values_N.mean().item() for name, stat in result.stats.items()}
    assert mean["value_clip_fraction"] == 0.25
    assert (mean["value"], mean["return"]) == (values.mean(), returns.mean())
    explained = 1 - mean["squared_error"] / (mean["return_square"] - mean["return"] ** 2)
    assert explained == pytest.approx(1 - ((returns - values) ** 2).mean() / returns.var())


def test_without_a_clip_there_is_no_clip_fraction():
    assert "value_clip_fraction" not in run(make_inputs([1.0], [0.0], [0.0]), clip=None)[0].stats


def test_it_trains_a_value_model_and_needs_nothing_of_a_policy():
    loss = ValueLoss(ValueLossConfig(aggregation="sequence_mean_token_mean"), CONTEXT)
    assert loss.needs == {"values"}
    assert (loss.level, loss.aggregation) == ("token", "sequence_mean_token_mean")


def test_a_batch_without_returns_is_refused():
    inputs = dataclasses.replace(make_inputs([0.0], [0.0], [0.0]), returns_N=None)
    with pytest.raises(ValueError, match="without values, old values or returns"):
        ValueLoss(ValueLossConfig(), CONTEXT)(inputs)


@pytest.mark.parametrize("seed", range(200))
def test_value_and_gradient_equal_an_independent_reference(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 40))
    old, returns = rng.normal(0, 0.6, (2, size)).astype(np.float32).astype(np.float64)
    values = (old + rng.normal(0, 0.4, size)).astype(np.float32).astype(np.float64)
    mask = rng.random(size) < 0.7
    clip = float(rng.uniform(0.05, 0.8)) if seed % 3 else None
    coef = float(rng.uniform(0.1, 1))
    losses, gradients = reference(values, old, returns, mask, clip, coef)
    for dtype in (torch.float64, torch.float32):
        inputs = make_inputs(values, old, returns, mask, dtype)
        result, gradient = run(inputs, clip=clip, coef=coef)
        got = result.per_token_N.detach().numpy()
        np.testing.assert_allclose(got, losses, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(gradient.numpy(), gradients, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf"), 1e4, -1e4])
def test_a_masked_position_changes_nothing_whatever_it_holds(poison):
    columns = [[1.0, poison, 2.0], [0.5, poison, 2.0], [0.0, poison, 1.0]]
    result, gradient = run(make_inputs(*columns, [True, False, True]))
    assert (result.per_token_N[1].item(), gradient[1].item()) == (0.0, 0.0)
    assert result.per_token_N[[0, 2]].tolist() == [1.0, 1.0]
    assert gradient[[0, 2]].tolist() == [2.0, 2.0]


def test_all_positions_masked_gives_loss_zero_and_gradient_zero():
    nothing = [float("nan")] * 3
    result, gradient = run(make_inputs(nothing, nothing, nothing, [False] * 3))
    assert result.per_token_N.tolist() == gradient.tolist() == [0.0] * 3
    assert all(torch.isfinite(stat.values_N).all() for stat in result.stats.values())
