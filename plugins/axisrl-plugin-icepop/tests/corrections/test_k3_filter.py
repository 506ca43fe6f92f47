"""icepop/k3-filter: tokens or trajectories over a bound on the estimated KL."""

import numpy as np
import pytest

from axisrl_icepop.config import K3FilterConfig
from axisrl_icepop.corrections.k3_filter import K3Filter


def make(kit, **options):
    return K3Filter(K3FilterConfig(**options), kit.context)


def k3(gap):
    return np.exp(gap) - 1 - gap


def test_the_level_it_says_is_the_configured_one(kit):
    assert make(kit).level == "trajectory"
    assert make(kit, level="token").level == "token"


def test_each_token_is_judged_by_its_own_k3(kit):
    columns = kit.make_columns([1.0, 1.2, -1.8, -1.9], [0.0] * 4)
    result = make(kit, level="token", threshold=1.0)(*columns)
    assert result.mask_N.tolist() == [True, False, True, False]
    assert kit.share(result, "kept", columns[2]) == 0.5
    assert result.weights_N.tolist() == [1.0] * 4


def test_the_estimate_is_of_the_rollout_against_the_trainer(kit):
    """Up is the exponential side: k3 of the ratio e^2 is 4.39, of e^-2 it is 1.14."""
    columns = kit.make_columns([2.0, -2.0], [0.0, 0.0])
    result = make(kit, level="token", threshold=2.0)(*columns)
    assert result.mask_N.tolist() == [False, True]


def test_a_trajectory_is_judged_by_the_mean_over_its_trained_tokens(kit):
    old = [1.0, 0.0, float("nan"), 0.1, 0.1]
    columns = kit.make_columns(old, [0.0] * 5, mask=[1, 1, 0, 1, 1], trajectory=[0, 0, 0, 1, 1])
    mean = k3(1.0) / 2
    below = make(kit, threshold=mean - 1e-9)(*columns).mask_N.tolist()
    above = make(kit, threshold=mean + 1e-9)(*columns).mask_N.tolist()
    assert below == [False, False, False, True, True]
    assert above == [True, True, False, True, True]


@pytest.mark.parametrize("gap", [1e4, -1e4])
@pytest.mark.parametrize("level", ["token", "trajectory"])
def test_a_gap_beyond_any_exponent_is_left_out(kit, gap, level):
    result = make(kit, level=level)(*kit.make_columns([gap], [0.0], dtype=kit.single))
    assert result.mask_N.tolist() == [False]


@pytest.mark.parametrize("level", ["token", "trajectory"])
def test_it_agrees_with_the_formula_token_by_token(kit, level):
    def rule(trajectory, gap):
        found = k3(gap) if level == "token" else np.mean([k3(each) for each in trajectory])
        return 1.0, not found > 0.05

    correction = make(kit, level=level, threshold=0.05)
    dropped, moved = kit.require_reference(correction, rule, spread=0.3)
    assert 1000 < dropped < 4000
    assert moved == 0
