"""Tests of benchmarks/report.py: numbers and tables as the benchmarks print them."""

import pytest


def test_a_spread_is_the_median_between_the_extremes():
    from report import Spread

    assert Spread.of([3.0, 1.0, 10.0]) == Spread(3.0, 1.0, 10.0)
    assert str(Spread.of([3.0, 1.0, 10.0])) == "3.00 (1.00 to 10.0)"


def test_a_spread_of_nothing_is_an_error():
    from report import Spread

    with pytest.raises(ValueError, match="nothing was measured"):
        Spread.of([])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.012345, "0.0123"), (1.234, "1.23"), (12.34, "12.3"), (12345.6, "12,346")],
)
def test_numbers_keep_three_digits(value, text):
    from report import short

    assert short(value) == text


def test_the_columns_of_a_table_line_up():
    from report import table

    lines = table(["a", "long"], [["123456", "1"], ["1", "2"]]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].replace(" ", "") == "|---|---|"


def test_versions_leave_out_what_is_not_installed():
    from report import versions

    assert versions(["axisrl-core", "no-such-distribution"]).count(",") == 1


def test_the_hardware_is_named():
    from report import cpu_name, usable_cpus

    assert cpu_name().endswith(f", {usable_cpus()} CPUs")
