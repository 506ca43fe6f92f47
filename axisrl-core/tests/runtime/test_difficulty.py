import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from axisrl.config.schema import SamplerConfig
from axisrl.runtime.difficulty import Difficulty

RANGES = [(-1.0, 1.0), (0.0, 100.0), (0.0, 1.0), (-7.5, -2.5)]


def known(success, low=0.0, high=1.0, **options):
    """Tasks of these successes (None: never played) on a scale from ``low`` to ``high``."""
    difficulty = Difficulty(len(success), SamplerConfig(**options))
    for index, share in enumerate(success):
        if share is not None:
            difficulty.observe(index, [low + share * (high - low)])
    return difficulty


@pytest.mark.parametrize(("low", "high"), RANGES)
@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({"strategy": "no_easy", "easy_above": 0.7}, [1, 1, 1, 0, 0, 1]),
        ({"strategy": "low_success", "floor": 0.1}, [1, 0.75, 0.5, 0.25, 0.1, 1]),
        ({"strategy": "intermediate", "floor": 0.1}, [0.1, 0.75, 1, 0.75, 0.1, 1]),
        ({"strategy": "intermediate", "floor": 0.0}, [0, 0.75, 1, 0.75, 0, 1]),
    ],
)
def test_weights_in_any_range_of_rewards(options, weights, low, high):
    difficulty = known([0, 0.25, 0.5, 0.75, 1, None], low, high, **options)
    assert difficulty.weights == pytest.approx(weights)


@pytest.mark.parametrize("strategy", ["no_easy", "low_success", "intermediate"])
@pytest.mark.parametrize("reward", [0.0, 1.0, -3.0, 0.1 + 0.2])
def test_equal_rewards_are_no_scale_and_leave_all_tasks_alike(strategy, reward):
    difficulty = Difficulty(4, SamplerConfig(strategy=strategy))
    difficulty.observe(0, [reward] * 3)
    difficulty.observe(1, [reward + 1e-16 * reward])
    assert difficulty.weights.tolist() == [1.0] * 4
    assert difficulty.metrics() == {"seen_frac": 0.5}


def test_the_scale_goes_to_the_extremes_of_single_rewards_and_not_of_means():
    difficulty = Difficulty(2, SamplerConfig(strategy="low_success", floor=0))
    difficulty.observe(0, [-1.0, 1.0])
    assert difficulty.weights.tolist() == [0.5, 1.0]


def test_a_wider_scale_moves_the_success_of_tasks_played_before():
    difficulty = known([0, 1], strategy="low_success", floor=0)
    difficulty.observe(0, [2.0, -2.0])  # the mean stays 0
    assert difficulty.weights.tolist() == [0.5, 0.25]


def test_memory_is_the_share_of_the_old_success_that_stays():
    difficulty = known([0, 1], strategy="low_success", floor=0, memory=0.75)
    difficulty.observe(1, [0.0, 0.0])
    assert difficulty.weights.tolist() == [1.0, 0.25]
    forgetful = known([0, 1], strategy="low_success", floor=0, memory=0)
    forgetful.observe(1, [0.0])
    assert forgetful.weights.tolist() == [1.0, 1.0]


def test_metrics_are_over_the_seen_tasks_and_absent_where_unmeasured():
    assert Difficulty(4, SamplerConfig(strategy="no_easy")).metrics() == {"seen_frac": 0.0}
    measured = known([0, 1, 0.8, None], strategy="no_easy").metrics()
    assert measured == {
        "seen_frac": 0.75,
        "success_mean": pytest.approx(0.6),
        "easy_frac": pytest.approx(1 / 3),
    }


ROUNDS = st.lists(
    st.tuples(st.integers(0, 4), st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=4))
)


@given(ROUNDS, st.sampled_from(["no_easy", "low_success", "intermediate"]))
def test_every_weight_is_from_the_floor_to_1_whatever_was_observed(rounds, strategy):
    difficulty = Difficulty(5, SamplerConfig(strategy=strategy, floor=0.125))
    for index, rewards in rounds:
        difficulty.observe(index, rewards)
    weights = difficulty.weights
    assert np.all((weights >= (0 if strategy == "no_easy" else 0.125)) & (weights <= 1))
    assert all(math.isfinite(value) for value in difficulty.metrics().values())
