"""icepop/veto: one all but impossible token leaves its trajectory out."""

import numpy as np
import pytest

from axisrl_icepop.config import VetoConfig
from axisrl_icepop.corrections.veto import Veto


def make(kit, **options):
    return Veto(VetoConfig(**options), kit.context)


def test_the_worst_token_decides_for_its_trajectory_alone(kit):
    columns = kit.from_ratios([1.0, 0.9e-4, 1.0, 1.1e-4], trajectory=[5, 5, 6, 6])
    result = make(kit)(*columns)
    assert result.mask_N.tolist() == [False, False, True, True]
    assert kit.share(result, "kept", columns[2]) == 0.5
    assert result.weights_N.tolist() == [1.0] * 4


def test_a_ratio_far_above_one_is_no_veto(kit):
    assert make(kit)(*kit.from_ratios([1e9, 1.0])).mask_N.all()


@pytest.mark.parametrize("poison", [float("nan"), float("-inf"), -1e4])
def test_a_masked_token_has_no_vote(kit, poison):
    columns = kit.make_columns([-1.0, poison], [-1.0, -1.0], mask=[1, 0])
    assert make(kit)(*columns).mask_N.tolist() == [True, False]


def test_it_agrees_with_the_formula_token_by_token(kit):
    def rule(trajectory, gap):
        return 1.0, not np.exp(np.min(trajectory)) < 1e-4

    dropped, moved = kit.require_reference(make(kit), rule, spread=4.0)
    assert dropped > 100
    assert moved == 0
