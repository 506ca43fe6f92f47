import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from axisrl.runtime.disagreement import ScoredTokens, by_position, by_value, measures, worst


def tokens(engine, trainer, *, positions=None, temperature=None):
    count = len(engine)
    return ScoredTokens(
        engine=np.asarray(engine, np.float64),
        trainer=np.asarray(trainer, np.float64),
        ids=np.arange(count),
        positions=np.arange(count) if positions is None else np.asarray(positions),
        temperature=np.ones(count) if temperature is None else np.asarray(temperature),
        versions=np.zeros(count, np.int64),
        rollouts=np.zeros(count, np.int64),
    )


def test_every_number_of_two_tokens_by_hand():
    found = measures(tokens([-1.0, -2.0], [-1.5, -1.0]))
    assert found == pytest.approx(
        {
            "abs_mean": 0.75,
            "abs_max": 1.0,
            "k1": -0.25,
            "k3": (math.exp(-0.5) - 1 + 0.5 + math.exp(1) - 1 - 1) / 2,
            "ratio_max": math.exp(1),
            "ratio_min": math.exp(-0.5),
            "cosine": 3.5 / math.sqrt(5 * 3.25),
            "tokens": 2,
            "nonfinite": 0,
        }
    )


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_token_that_is_not_finite_is_counted_and_in_no_other_number(bad):
    found = measures(tokens([-1.0, bad, -1.0], [-1.0, -1.0, bad]))
    assert (found["tokens"], found["nonfinite"], found["abs_max"]) == (3, 2, 0)
    assert measures(tokens([bad], [bad])) == {"tokens": 1, "nonfinite": 1}


def test_a_ratio_too_large_for_a_number_stays_one():
    found = measures(tokens([-1.0], [-5000.0]))
    assert (found["abs_max"], found["ratio_min"]) == (4999.0, pytest.approx(math.exp(-20)))
    assert math.isfinite(measures(tokens([-5000.0], [-1.0]))["k3"])


def test_certain_tokens_have_no_direction_to_compare():
    assert "cosine" not in measures(tokens([0.0], [0.0]))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=80))
def test_positions_are_parted_without_overlap_and_every_token_is_in_one_part(positions):
    parts = by_position(
        tokens([-1.0] * len(positions), [-1.0] * len(positions), positions=positions)
    )
    assert len(parts) <= 10
    assert sum(part["tokens"] for part in parts) == len(positions)
    assert all(one["last"] < other["first"] for one, other in itertools.pairwise(parts))


def test_a_hundred_positions_are_ten_parts_of_ten():
    parts = by_position(tokens([-1.0] * 100, [-1.0] * 100))
    assert [part["tokens"] for part in parts] == [10] * 10


def test_each_temperature_is_measured_alone():
    found = by_value(tokens([-1.0, -2.0], [-1.0, -1.0], temperature=[1.0, 0.5]), "temperature")
    assert [(one["temperature"], one["abs_max"]) for one in found] == [(0.5, 1.0), (1.0, 0.0)]


def test_the_worst_come_first_and_what_is_no_number_before_them():
    found = worst(tokens([-1.0, -1.0, math.nan], [-1.1, -3.0, -1.0]), ["r"], str, count=2)
    assert [(one["token"], one["engine"], one["text"]) for one in found] == [
        (2, None, "2"),
        (1, -1.0, "1"),
    ]
    assert {one["rollout"] for one in found} == {"r"}
