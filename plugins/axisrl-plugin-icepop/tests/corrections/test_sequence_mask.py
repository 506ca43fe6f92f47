"""icepop/sequence-mask: trajectories are judged by the geometric mean of their ratios."""

import numpy as np
import pytest

from axisrl_icepop.config import SequenceMaskConfig
from axisrl_icepop.corrections.sequence_mask import SequenceMask


def make(kit, **options):
    return SequenceMask(SequenceMaskConfig(**options), kit.context)


def test_a_trajectory_is_kept_or_left_out_as_a_whole(kit):
    gaps = np.array([0.5, -0.499, 0.001, 0.0025, 0.0025])
    columns = kit.make_columns(gaps, np.zeros(5), trajectory=[3, 3, 3, 8, 8])
    result = make(kit)(*columns)
    assert result.mask_N.tolist() == [True, True, True, False, False]
    assert kit.share(result, "kept", columns[2]) == pytest.approx(0.6)
    assert result.weights_N.tolist() == [1.0] * 5


def test_the_mean_counts_trained_tokens_only(kit):
    columns = kit.make_columns([0.006, 9.0, 9.0, 9.0], [0.0] * 4, mask=[1, 0, 0, 0])
    assert not make(kit)(*columns).mask_N.any()
    columns = kit.make_columns([0.001, 9.0, float("nan")], [0.0] * 3, mask=[1, 0, 0])
    assert make(kit)(*columns).mask_N.tolist() == [True, False, False]


def test_the_length_does_not_matter(kit):
    short, long = (kit.make_columns([0.0019] * n, [0.0] * n) for n in (2, 2000))
    assert make(kit)(*short).mask_N.all()
    assert make(kit)(*long).mask_N.all()


def test_a_long_trajectory_near_a_bound_is_judged_alike_in_any_order(kit):
    rng = np.random.default_rng(1)
    gaps = rng.normal(0, 3, 5000).astype(np.float32)
    gaps -= np.float32(gaps.mean())
    middle = float(np.exp(gaps.astype(np.float64).mean()))
    correction = make(kit, low=min(1.0, middle * (1 - 1e-12)), high=max(1.0, middle * (1 + 1e-12)))
    for order in (np.arange(5000), np.arange(5000)[::-1], rng.permutation(5000)):
        columns = kit.make_columns(gaps[order], np.zeros(5000), dtype=kit.single)
        assert correction(*columns).mask_N.all()


def test_it_agrees_with_the_formula_token_by_token(kit):
    def rule(trajectory, gap):
        return 1.0, 0.9 <= np.exp(np.mean(trajectory)) <= 1.1

    dropped, moved = kit.require_reference(make(kit, low=0.9, high=1.1), rule, spread=0.3)
    assert 1000 < dropped < 4000
    assert moved == 0
