"""icepop/token-tis: one capped importance weight a token."""

import numpy as np
import pytest

from axisrl_icepop.config import TokenTisConfig
from axisrl_icepop.corrections.token_tis import TokenTis


def make(kit, **options):
    return TokenTis(TokenTisConfig(**options), kit.context)


def test_a_weight_is_the_ratio_up_to_the_cap(kit):
    columns = kit.from_ratios([0.25, 1.0, 1.5, 10.0])
    result = make(kit)(*columns)
    assert result.weights_N.tolist() == pytest.approx([0.25, 1.0, 1.5, 2.0])
    assert result.mask_N.all()


def test_mean_maximum_and_the_share_cut_are_measured_over_the_trained_tokens(kit):
    columns = kit.from_ratios([0.5, 1.0, 10.0, 10.0], mask=[1, 1, 1, 0])
    result = make(kit)(*columns)
    assert kit.share(result, "weight", columns[2]) == pytest.approx(3.5 / 3)
    assert kit.share(result, "weight_max", columns[2]) == pytest.approx(2.0)
    assert kit.share(result, "capped", columns[2]) == pytest.approx(1 / 3)


def test_a_masked_token_has_weight_exactly_one(kit):
    nan = float("nan")
    result = make(kit)(*kit.make_columns([-1.0, nan], [-1.5, nan], mask=[1, 0]))
    assert result.weights_N[1].item() == 1.0
    assert result.mask_N.tolist() == [True, False]


def test_a_token_that_became_impossible_keeps_a_tiny_weight(kit):
    result = make(kit)(*kit.make_columns([-1e4, 1e4], [0.0, 0.0]))
    assert result.weights_N.tolist() == pytest.approx([np.exp(-20.0), 2.0])


def test_it_agrees_with_the_formula_token_by_token(kit):
    def rule(trajectory, gap):
        return min(np.exp(min(max(gap, -20.0), 20.0)), 2.0), True

    dropped, moved = kit.require_reference(make(kit), rule, spread=1.5)
    assert dropped == 0
    assert moved > 1000
