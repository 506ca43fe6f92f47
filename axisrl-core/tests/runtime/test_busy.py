"""How long an actor worked, by clocks that stand still unless told."""

import pytest

from axisrl.runtime.busy import Activity, BusyClock
from axisrl.runtime.spans import Span


class Hands:
    """Both clocks of a machine, the wall clock 1000 s ahead."""

    def __init__(self):
        self.now = 0.0

    def clock(self):
        return self.now

    def wall(self):
        return self.now + 1000.0


@pytest.fixture
def hands():
    return Hands()


@pytest.fixture
def clock(hands):
    return BusyClock("generate", hands.clock, hands.wall)


def test_work_that_overlaps_is_counted_once(clock, hands):
    with clock.busy():
        hands.now = 1.0
        with clock.busy():
            hands.now = 3.0
        hands.now = 4.0
    hands.now = 10.0
    assert clock.report() == Activity(10.0, 4.0, (Span("generate", 1000.0, 4.0),))


def test_work_that_fails_is_over(clock, hands):
    with pytest.raises(ValueError), clock.busy():
        hands.now = 2.0
        raise ValueError
    hands.now = 5.0
    assert clock.report().busy_s == 2.0


def test_work_that_goes_on_counts_until_it_is_asked_for_and_from_there_on(clock, hands):
    with clock.busy():
        hands.now = 2.0
        first = clock.report()
        hands.now = 5.0
    second = clock.report()
    assert (first.busy_s, second.busy_s) == (2.0, 5.0)
    assert first.spans == (Span("generate", 1000.0, 2.0),)
    assert second.spans == (Span("generate", 1002.0, 3.0),)


def test_each_span_is_told_once(clock, hands):
    with clock.busy():
        hands.now = 2.0
    clock.report()
    assert clock.report() == Activity(2.0, 2.0, ())


def test_calls_that_follow_at_once_are_one_span(clock, hands):
    for _ in range(3):
        with clock.busy():
            hands.now += 1.0
        hands.now += 0.0005
    report = clock.report()
    assert report.busy_s == pytest.approx(3.0)
    assert len(report.spans) == 1
    assert report.spans[0].seconds == pytest.approx(3.001)


def test_a_report_has_a_bound_and_the_seconds_have_none(clock, hands):
    for _ in range(2000):
        with clock.busy():
            hands.now += 1.0
        hands.now += 1.0
    report = clock.report()
    assert (report.busy_s, len(report.spans)) == (2000.0, 500)


def test_what_is_noted_is_drawn_and_is_no_work(clock, hands):
    with clock.noted("update weights"):
        hands.now = 2.0
    assert clock.report() == Activity(2.0, 0.0, (Span("update weights", 1000.0, 2.0),))
