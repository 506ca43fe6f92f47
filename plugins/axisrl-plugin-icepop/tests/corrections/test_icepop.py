"""icepop/icepop: tokens outside the band are left out, and stay in the denominator."""

import numpy as np
import pytest
import torch

from axisrl_icepop.config import IcepopConfig, TokenTisConfig
from axisrl_icepop.corrections.icepop import Icepop
from axisrl_icepop.corrections.token_tis import TokenTis


def make(kit, **options):
    return Icepop(IcepopConfig(**options), kit.context)


def test_ratios_of_a_quarter_one_and_ten_lose_a_third_and_keep_the_denominator(kit):
    columns = kit.from_ratios([0.25, 1.0, 10.0])
    result = make(kit)(*columns)
    assert result.mask_N.tolist() == [False, True, False]
    assert kit.share(result, "kept", columns[2]) == pytest.approx(1 / 3)
    advantages = torch.ones(3, dtype=torch.float64)
    policy = -advantages * result.weights_N * result.mask_N
    assert (policy.sum() / columns[2].sum()).item() == pytest.approx(-1 / 3)


def test_the_bounds_themselves_are_inside(kit):
    columns = kit.make_columns([0.0, 0.0], [1.0, -1.0])
    edge = float(np.exp(-1.0))
    assert make(kit, low=edge, high=1 / edge * (1 + 1e-15))(*columns).mask_N.all()
    assert not make(kit, low=edge + 1e-9, high=1 / edge - 1e-9)(*columns).mask_N.any()


def test_the_tokens_it_keeps_have_weight_exactly_one(kit):
    result = make(kit)(*kit.from_ratios([0.6, 1.0, 4.9, 40.0], mask=[1, 1, 0, 1]))
    assert result.weights_N.tolist() == [1.0] * 4


def test_followed_by_token_tis_at_its_upper_bound_it_is_the_reports_own_weight(kit):
    ratios = np.array([0.25, 0.5001, 0.7, 1.0, 3.0, 4.999, 10.0])
    columns = kit.from_ratios(ratios)
    kept = make(kit)(*columns).mask_N
    weights = TokenTis(TokenTisConfig(cap=5.0), kit.context)(*columns).weights_N
    wanted = np.where((ratios >= 0.5) & (ratios <= 5), ratios, 0.0)
    np.testing.assert_allclose((kept * weights).numpy(), wanted, rtol=1e-12)


def test_the_kept_rate_is_a_share_of_the_trained_tokens(kit):
    columns = kit.from_ratios([1.0, 10.0, 1.0, 10.0], mask=[1, 1, 0, 0])
    result = make(kit)(*columns)
    assert kit.share(result, "kept", columns[2]) == 0.5


def test_it_agrees_with_the_formula_token_by_token(kit):
    def rule(trajectory, gap):
        return 1.0, 0.5 <= np.exp(gap) <= 5

    dropped, moved = kit.require_reference(make(kit), rule, spread=0.8)
    assert dropped > 100
    assert moved == 0
