import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axisrl.runtime.metrics import MetricWindow, merge
from axisrl.types import Metric

finite = st.floats(-1e6, 1e6)
parts = st.lists(
    st.builds(Metric, value=finite, weight=st.floats(0.001, 1e3)), min_size=1, max_size=12
)


def window(*metrics):
    made = MetricWindow()
    for metric in metrics:
        made.add("x", metric)
    return made.flush()


def test_means_merge_by_weight():
    assert window(Metric(value=1.0, weight=3.0), Metric(value=5.0, weight=1.0)) == {"x": 2.0}


def test_sums_are_summed_whatever_their_weight():
    assert window(Metric(value=2.0, weight=9.0, reduce="sum"), Metric(value=3.0, reduce="sum")) == {
        "x": 5.0
    }


def test_extrema_are_reduced_as_extrema():
    values = (3.0, -1.0, 2.0)
    assert window(*(Metric(value=v, reduce="min") for v in values)) == {"x": -1.0}
    assert window(*(Metric(value=v, reduce="max") for v in values)) == {"x": 3.0}


def test_what_nobody_measured_is_absent_and_not_zero():
    assert window(Metric(value=0.0, weight=0.0)) == {}
    assert window() == {}


def test_a_measured_zero_is_there():
    assert window(Metric(value=0.0)) == {"x": 0.0}


def test_the_value_of_a_part_without_weight_does_not_count():
    assert window(Metric(value=math.nan, weight=0.0), Metric(value=4.0)) == {"x": 4.0}


@pytest.mark.parametrize("reduce", ["mean", "sum", "min", "max"])
def test_nan_is_not_hidden_by_order(reduce):
    ordered = [Metric(value=v, reduce=reduce) for v in (1.0, math.nan, 2.0)]
    for metrics in (ordered, ordered[::-1]):
        assert math.isnan(window(*metrics)["x"])


def test_flush_empties_the_window_and_sorts_the_names():
    made = MetricWindow()
    made.update({"b": Metric(value=1.0), "a": Metric(value=2.0)})
    assert list(made.flush().items()) == [("a", 2.0), ("b", 1.0)]
    assert made.flush() == {}


def test_one_name_reduced_in_two_ways_is_an_error_that_names_it():
    made = MetricWindow()
    made.add("loss/kl", Metric(value=1.0))
    with pytest.raises(ValueError, match="loss/kl was added as mean and now as max"):
        made.add("loss/kl", Metric(value=1.0, reduce="max"))
    with pytest.raises(ValueError, match="max and as mean"):
        merge([Metric(value=1.0), Metric(value=1.0, reduce="max")])


@given(parts, st.integers(0, 12))
def test_merging_in_stages_gives_what_merging_at_once_gives(metrics, cut):
    stages = [merge(metrics[:cut]), merge(metrics[cut:])]
    staged = merge([stage for stage in stages if stage])
    at_once = merge(metrics)
    assert staged.value == pytest.approx(at_once.value, rel=1e-9, abs=1e-9)
    assert staged.weight == pytest.approx(at_once.weight)


@given(parts, st.randoms())
def test_the_order_of_arrival_changes_no_bit(metrics, random):
    shuffled = list(metrics)
    random.shuffle(shuffled)
    assert merge(shuffled) == merge(metrics)
