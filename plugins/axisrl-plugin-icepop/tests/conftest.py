"""Batches for corrections, and what a reference written as loops says about them."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from axisrl.types import BuildContext

CASES = 200  # random batches a correction


def make_columns(old, rollout, mask=None, trajectory=None, *, dtype=torch.float64):
    """The four arguments of a correction."""
    size = len(old)
    return (
        torch.tensor(np.asarray(old), dtype=dtype),
        torch.tensor(np.asarray(rollout), dtype=dtype),
        torch.tensor([True] * size if mask is None else [bool(each) for each in mask]),
        torch.tensor([0] * size if trajectory is None else list(trajectory), dtype=torch.int64),
    )


def from_ratios(ratios, mask=None, trajectory=None):
    """Columns whose trainer/rollout ratios are ``ratios``."""
    return make_columns(np.log(ratios), np.zeros(len(ratios)), mask, trajectory)


def random_columns(seed, spread):
    """float32 columns of up to 60 tokens of up to 5 trajectories, rows of which may be apart."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 60))
    old = rng.normal(-2, 1.5, size).astype(np.float32)
    rollout = (old - rng.normal(0, spread, size)).astype(np.float32)
    mask = rng.random(size) < 0.7
    trajectory = rng.integers(0, 5, size) * 7
    return make_columns(old, rollout, mask, trajectory, dtype=torch.float32)


def reference(columns, rule):
    """Weight and kept of each token from ``rule(gaps of its trajectory's trained tokens, own gap)``
    in float64, one token after another."""
    old, rollout, mask, trajectory = (column.tolist() for column in columns)
    weights, kept = [], []
    for index in range(len(old)):
        if not mask[index]:
            weights.append(1.0)
            kept.append(False)
            continue
        own = [
            old[other] - rollout[other]
            for other in range(len(old))
            if mask[other] and trajectory[other] == trajectory[index]
        ]
        weight, keep = rule(own, old[index] - rollout[index])
        weights.append(weight)
        kept.append(keep)
    return np.array(weights), np.array(kept)


def require_reference(correction, rule, spread):
    """The correction says what the rule says, in ``CASES`` random batches of float32; both
    outcomes occur."""
    dropped = moved = 0
    for seed in range(CASES):
        columns = random_columns(seed, spread)
        result = correction(*columns)
        weights, kept = reference(columns, rule)
        np.testing.assert_allclose(result.weights_N.numpy(), weights, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(result.mask_N.numpy(), kept)
        assert result.weights_N.dtype == torch.float32
        dropped += int((columns[2] & ~result.mask_N).sum())
        moved += int((result.weights_N != 1).sum())
    return dropped, moved


def share(result, name, mask):
    """A stat as the trainer reduces it."""
    stat = result.stats[name]
    values = stat.values_N[mask].double()
    return (values.max() if stat.reduce == "max" else values.mean()).item()


@pytest.fixture
def kit():
    """The helpers of this module, and a context."""
    return SimpleNamespace(
        context=BuildContext(run_dir=Path("unused")),
        single=torch.float32,
        make_columns=make_columns,
        from_ratios=from_ratios,
        require_reference=require_reference,
        share=share,
    )
