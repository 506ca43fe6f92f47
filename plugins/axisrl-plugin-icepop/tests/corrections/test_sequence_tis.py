"""icepop/sequence-tis: one capped importance weight a trajectory."""

import numpy as np
import pytest

from axisrl_icepop.config import SequenceTisConfig
from axisrl_icepop.corrections.sequence_tis import SequenceTis


def make(kit, **options):
    return SequenceTis(SequenceTisConfig(**options), kit.context)


def test_the_weight_is_the_product_of_the_ratios_up_to_the_cap(kit):
    columns = kit.from_ratios([0.5, 0.5, 3.0, 1.2, 3.0], trajectory=[1, 1, 2, 1, 2])
    result = make(kit)(*columns)
    assert result.weights_N.tolist() == pytest.approx([0.3, 0.3, 2.0, 0.3, 2.0])
    assert result.mask_N.all()


def test_the_geometric_variant_takes_their_mean(kit):
    columns = kit.from_ratios([0.5, 0.5, 4.0, 9.0], trajectory=[1, 1, 2, 2])
    result = make(kit, geometric=True, cap=5.0)(*columns)
    assert result.weights_N.tolist() == pytest.approx([0.5, 0.5, 5.0, 5.0])
    assert make(kit, geometric=True, cap=7.0)(*columns).weights_N[2].item() == pytest.approx(6.0)


def test_masked_tokens_are_no_factor_and_have_weight_exactly_one(kit):
    columns = kit.from_ratios([0.5, 1e-3, 1.5], mask=[1, 0, 1])
    assert make(kit)(*columns).weights_N.tolist() == pytest.approx([0.75, 1.0, 0.75])
    nan = float("nan")
    result = make(kit)(*kit.make_columns([-1.0, nan], [-1.0, nan], mask=[1, 0]))
    assert result.weights_N.tolist() == [1.0, 1.0]


def test_mean_and_maximum_are_measured_over_the_trained_tokens(kit):
    columns = kit.from_ratios([0.5, 1.0, 9.0, 9.0], mask=[1, 1, 1, 0], trajectory=[0, 0, 1, 1])
    result = make(kit)(*columns)
    assert kit.share(result, "weight", columns[2]) == pytest.approx(1.0)
    assert kit.share(result, "weight_max", columns[2]) == pytest.approx(2.0)
    assert kit.share(result, "capped", columns[2]) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("gap", "weight"), [(100.0, 2.0), (-100.0, 0.0)])
def test_a_sum_beyond_any_exponent_meets_the_cap_or_becomes_zero(kit, gap, weight):
    columns = kit.make_columns([gap] * 500, [0.0] * 500, dtype=kit.single)
    assert make(kit)(*columns).weights_N.tolist() == [weight] * 500


@pytest.mark.parametrize("geometric", [False, True])
def test_it_agrees_with_the_formula_token_by_token(kit, geometric):
    def rule(trajectory, gap):
        return min(np.exp(np.mean(trajectory) if geometric else np.sum(trajectory)), 2.0), True

    dropped, moved = kit.require_reference(make(kit, geometric=geometric), rule, spread=0.4)
    assert dropped == 0
    assert moved > 1000
