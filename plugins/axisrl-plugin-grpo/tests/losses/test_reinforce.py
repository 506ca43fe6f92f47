"""grpo/reinforce against the formula -A lp, and what it does not look at."""

from dataclasses import replace

import pytest

from axisrl.config.losses import LossConfig
from axisrl_grpo.losses.reinforce import ReinforceLoss


@pytest.fixture(scope="module")
def loss(kit):
    return ReinforceLoss(LossConfig(), kit.context)


def test_a_token_loses_minus_its_advantage_times_its_logprob(loss, kit):
    _, values, gradient = kit.run(loss, kit.tokens([0.0, 0.5], [1.0, -2.0], base=-1.0))
    assert values.tolist() == [1.0, -1.0]
    assert gradient.tolist() == [-1.0, 2.0]


def test_it_needs_nothing_and_has_no_ratio_to_tell_of(loss, kit):
    assert loss.needs == frozenset()
    assert kit.run(loss, kit.tokens([0.5], [1.0]))[0].stats == {}


def test_what_the_rollout_recorded_makes_no_difference(loss, kit):
    batch = kit.tokens([0.5, -3.0], [1.0, -1.0])
    moved = replace(batch, rollout=batch.rollout - 5)
    assert kit.run(loss, batch)[1].tolist() == kit.run(loss, moved)[1].tolist()


def test_the_declared_aggregation_is_the_configured_one(kit):
    config = LossConfig(aggregation="sequence_mean_token_sum_norm", sequence_norm=512)
    loss = ReinforceLoss(config, kit.context)
    assert (loss.aggregation, loss.sequence_norm) == ("sequence_mean_token_sum_norm", 512)


def test_masked_positions_change_nothing_whatever_they_hold(loss, kit):
    kit.require_masked_nothing(loss)


def test_all_positions_masked_gives_loss_zero_and_gradient_zero(loss, kit):
    kit.require_all_masked_is_zero(loss)


@pytest.mark.parametrize("seed", range(200))
def test_value_and_gradient_equal_an_independent_reference(loss, kit, seed):
    formula = kit.by_token(lambda lp, ratio, advantage, at: (-advantage * lp, -advantage))
    kit.require_reference(loss, kit.random_columns(seed), formula)
