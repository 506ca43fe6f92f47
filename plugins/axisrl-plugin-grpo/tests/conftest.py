"""Groups of rollouts, batches of tokens and the comparison of a loss with its formula."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from axisrl.protocols import LossInputs
from axisrl.types import BuildContext, Outcome, RolloutGroup, RolloutSummary, Turns

CONTEXT = BuildContext(run_dir=Path("unused"))
NUDGE = 1e-6
"""At a border of the clip float32 may fall on either side: the gradient of either is right."""


def group_of(rewards, turns=()):
    """Members ``r0``, ``r1``, ... of task ``t``. ``turns``: (tokens, rewards) of each turn of each
    member."""
    members = tuple(
        RolloutSummary(
            id=f"r{index}",
            task_id="t",
            group=0,
            member=index,
            outcome=Outcome.COMPLETED,
            reward=reward,
        )
        for index, reward in enumerate(rewards)
    )
    told = tuple(
        Turns(
            tokens=tuple(tokens for tokens, _ in member),
            rewards=np.asarray([reward for _, reward in member], np.float32),
        )
        for member in turns
    )
    return RolloutGroup(group=0, task_id="t", members=members, turns=told)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """A batch as numpy arrays (N,)."""

    current: np.ndarray
    old: np.ndarray
    rollout: np.ndarray
    advantages: np.ndarray
    mask: np.ndarray
    trajectory: np.ndarray

    def base(self, name):
        return self.old if name == "old" else self.rollout

    def poisoned(self, poison):
        """``poison`` at every masked position."""
        names = ("current", "old", "rollout", "advantages")
        return replace(self, **{n: np.where(self.mask, getattr(self, n), poison) for n in names})

    def inputs(self, dtype, needs):
        def tensor(values):
            return torch.tensor(values, dtype=dtype)

        return LossInputs(
            logprobs_N=tensor(self.current).requires_grad_(),
            mask_N=torch.tensor(self.mask),
            advantages_N=tensor(self.advantages),
            rollout_logprobs_N=tensor(self.rollout),
            trajectory_N=torch.tensor(self.trajectory),
            old_logprobs_N=tensor(self.old) if "old_logprobs" in needs else None,
        )


def tokens(log_ratios, advantages, *, base=-1.0, mask=None, trajectory=None):
    """A small batch: current log-probabilities ``base + log_ratios``, the others ``base``."""
    log_ratios = np.asarray(log_ratios, np.float64)
    size = len(log_ratios)
    fixed = np.full(size, base, np.float64)
    return Columns(
        current=fixed + log_ratios,
        old=fixed,
        rollout=fixed,
        advantages=np.asarray(advantages, np.float64),
        mask=np.ones(size, bool) if mask is None else np.asarray(mask, bool),
        trajectory=np.arange(size) if trajectory is None else np.asarray(trajectory),
    )


def random_columns(seed, borders=(), scale=1.0):
    """float32, 1 to 60 tokens of up to 6 trajectories, log-ratios within +-3 ``scale``; a third of
    the tokens at a border of the log-ratio or 1e-4 off it; masked positions hold anything."""
    rng = np.random.default_rng([7, seed])
    size = int(rng.integers(1, 61))
    ratios = rng.uniform(-3, 3, size) * scale
    if borders:
        near = rng.choice(borders, size) + rng.choice([-1e-4, 0.0, 1e-4], size)
        ratios = np.where(rng.random(size) < 1 / 3, near, ratios)
    base = -rng.gamma(2.0, 0.6, size)
    advantages = np.where(rng.random(size) < 0.2, 0.0, rng.normal(0, 1.5, size))
    columns = Columns(
        current=(base + ratios).astype(np.float32),
        old=base.astype(np.float32),
        rollout=base.astype(np.float32),
        advantages=advantages.astype(np.float32),
        mask=rng.random(size) < rng.choice([0.0, 0.5, 0.7, 1.0], p=[0.05, 0.25, 0.5, 0.2]),
        trajectory=rng.integers(0, 6, size),
    )
    return columns.poisoned(rng.choice([np.nan, np.inf, -np.inf, 1e4, -1e4, 0.0], size))


def run(loss, columns, dtype=torch.float64):
    """The result of a loss, its numerators and their gradient, as float64 arrays."""
    inputs = columns.inputs(dtype, loss.needs)
    result = loss(inputs)
    gradient = torch.autograd.grad(result.per_token_N.sum(), inputs.logprobs_N)[0]
    return result, result.per_token_N.detach().double().numpy(), gradient.double().numpy()


def require_reference(loss, columns, formula):
    """Value and gradient of ``loss`` in float32 are the ones of ``formula``, within 1e-6.

    ``formula(columns, nudge)`` gives both as lists of floats; it is fed the same float32 numbers,
    in float64, and adds ``nudge`` to the log-ratio that it compares with the borders of the clip.
    """
    _, values, gradient = run(loss, columns, torch.float32)
    wide = replace(
        columns,
        **{n: getattr(columns, n).astype(np.float64) for n in ("current", "old", "rollout")},
        advantages=columns.advantages.astype(np.float64),
    )
    expected, _ = formula(wide, 0.0)
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-6)
    slopes = np.array([formula(wide, nudge)[1] for nudge in (0.0, NUDGE, -NUDGE)])
    gaps = np.abs(slopes - gradient).min(axis=0)
    worst = (gaps / np.maximum(1, np.abs(slopes).max(axis=0))).max()
    assert worst <= 1e-6, f"the gradient is off by {worst:.3g}"


def by_token(rule, base="old"):
    """A formula for :func:`require_reference` from ``rule(lp, r, A, at) -> (value, gradient)`` of
    one trained token: r is the ratio, its logarithm clamped to +-20, and ``at`` the same nudged."""

    def formula(columns, nudge):
        values, slopes = [], []
        for lp, b, advantage, keep in zip(
            columns.current,
            columns.base(base),
            columns.advantages,
            columns.mask,
            strict=True,
        ):
            value, slope = 0.0, 0.0
            if keep:
                d = min(max(lp - b, -20.0), 20.0)
                value, slope = rule(lp, math.exp(d), advantage, math.exp(d + nudge))
            values.append(value)
            slopes.append(slope)
        return values, slopes

    return formula


def require_masked_nothing(loss):
    """Whatever masked positions hold, they lose nothing and the others lose what they did."""
    clean = tokens([0.3, 0.0, -0.4, 0.7], [1.0, 0.5, -1.0, -2.0], trajectory=[0, 0, 1, 0])
    clean = replace(clean, mask=np.array([True, False, True, False]))
    before, values, gradient = run(loss, clean)
    for poison in (np.nan, np.inf, -np.inf, 1e4, -1e4):
        result, got, slope = run(loss, clean.poisoned(poison))
        assert got.tolist() == values.tolist()
        assert slope.tolist() == gradient.tolist()
        assert got[[1, 3]].tolist() == slope[[1, 3]].tolist() == [0.0, 0.0]
        for name, entry in result.stats.items():
            assert torch.equal(entry.values_N, before.stats[name].values_N), name


def require_all_masked_is_zero(loss):
    """Nothing trained: loss 0, gradient 0, no NaN anywhere."""
    nothing = tokens([0.0] * 3, [1.0] * 3, mask=[False] * 3).poisoned(np.nan)
    result, values, gradient = run(loss, nothing)
    assert values.tolist() == gradient.tolist() == [0.0] * 3
    assert all(entry.values_N.isfinite().all() for entry in result.stats.values())


@pytest.fixture(scope="session")
def kit():
    """The functions of this file, for test modules: they cannot import it."""
    return SimpleNamespace(
        context=CONTEXT,
        group_of=group_of,
        tokens=tokens,
        random_columns=random_columns,
        run=run,
        by_token=by_token,
        require_reference=require_reference,
        require_masked_nothing=require_masked_nothing,
        require_all_masked_is_zero=require_all_masked_is_zero,
    )


@pytest.fixture(scope="session")
def mean_of():
    """The mean of a named statistic over all tokens."""
    return lambda result, name: result.stats[name].values_N.double().mean().item()


@pytest.fixture(scope="session")
def scalars():
    """Advantages of rewards as floats."""

    def run_it(advantage, rewards):
        return [float(value) for value in advantage(group_of(rewards), None).advantages]

    return run_it
