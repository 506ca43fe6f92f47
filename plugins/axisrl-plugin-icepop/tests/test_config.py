"""Options under which agreement would be corrected, or nothing would be, are refused."""

import pytest

from axisrl_icepop.config import (
    IcepopConfig,
    K3FilterConfig,
    SequenceMaskConfig,
    SequenceTisConfig,
    TokenTisConfig,
    VetoConfig,
)

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("config", [IcepopConfig, SequenceMaskConfig])
@pytest.mark.parametrize(
    "band", [(0.0, 2.0), (-1.0, 2.0), (1.1, 2.0), (0.5, 0.9), (0.5, INF), (NAN, 2.0), (0.5, NAN)]
)
def test_a_band_holds_a_ratio_of_one_and_has_two_ends(config, band):
    with pytest.raises(ValueError, match="a ratio of 1 is agreement"):
        config(low=band[0], high=band[1])


@pytest.mark.parametrize("config", [TokenTisConfig, SequenceTisConfig])
@pytest.mark.parametrize("cap", [0.9, 0.0, -1.0, INF, NAN])
def test_a_cap_is_finite_and_at_least_one(config, cap):
    with pytest.raises(ValueError, match=r"cap .* must be finite and at least 1"):
        config(cap=cap)


@pytest.mark.parametrize("threshold", [0.0, -1e-4, 1.1, NAN])
def test_a_veto_threshold_is_a_share(threshold):
    with pytest.raises(ValueError, match=r"is not in \(0, 1\]"):
        VetoConfig(threshold=threshold)


@pytest.mark.parametrize("threshold", [0.0, -1.0, INF, NAN])
def test_a_k3_threshold_is_finite_and_above_zero(threshold):
    with pytest.raises(ValueError, match="finite number above 0"):
        K3FilterConfig(threshold=threshold)


def test_the_defaults_are_those_of_the_sources():
    assert (IcepopConfig().low, IcepopConfig().high) == (0.5, 5.0)
    assert (SequenceMaskConfig().low, SequenceMaskConfig().high) == (0.998, 1.002)
    assert TokenTisConfig().cap == SequenceTisConfig().cap == 2.0
    assert VetoConfig().threshold == 1e-4
