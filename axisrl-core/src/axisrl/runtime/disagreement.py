"""How far engine and trainer disagree about the log-probabilities of the same sampled tokens.

D = engine - trainer. ``k1`` = mean D and ``k3`` = mean (exp(-D) - 1 + D) estimate
KL(engine || trainer) from the engine's samples (J. Schulman, "Approximating KL Divergence", 2020);
the ratio is exp(-D), the importance weight a loss would see; ``cosine`` is that of the two vectors
of log-probabilities. In exponents D is clamped to +-20, as in :mod:`axisrl.ops.kl`. Tokens with a
log-probability that is not finite are counted and in no other number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axisrl.types import BoolArray

_CLAMP = 20.0
_PARTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredTokens:
    """Sampled tokens of several rollouts; every array is (tokens,)."""

    engine: NDArray[np.float64]
    trainer: NDArray[np.float64]
    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    """Tokens before it in its context."""
    temperature: NDArray[np.float64]
    versions: NDArray[np.int64]
    rollouts: NDArray[np.int64]
    """Index of its rollout."""


def measures(tokens: ScoredTokens, chosen: BoolArray | None = None) -> dict[str, float]:
    """Every number of the module's docstring over the chosen tokens (all). What cannot be computed
    (no finite pair, a vector of zeros) is absent."""
    every = np.ones(len(tokens.ids), bool) if chosen is None else chosen
    used = every & _finite(tokens)
    found: dict[str, float] = {
        "tokens": int(every.sum()),
        "nonfinite": int(every.sum() - used.sum()),
    }
    if not used.any():
        return found
    engine, trainer = tokens.engine[used], tokens.trainer[used]
    gap = engine - trainer
    clamped = np.clip(gap, -_CLAMP, _CLAMP)
    ratio = np.exp(-clamped)
    lengths = float(np.linalg.norm(engine) * np.linalg.norm(trainer))
    return {
        "abs_mean": float(np.abs(gap).mean()),
        "abs_max": float(np.abs(gap).max()),
        "k1": float(gap.mean()),
        "k3": float((ratio - 1 + clamped).mean()),
        "ratio_max": float(ratio.max()),
        "ratio_min": float(ratio.min()),
        **({"cosine": float(engine @ trainer) / lengths} if lengths else {}),
        **found,
    }


def by_position(tokens: ScoredTokens) -> list[dict[str, float]]:
    """The measures of ten parts with about as many tokens each, first the ones nearest the
    beginning of their context. Tokens of one position are in one part."""
    edges = np.quantile(tokens.positions, np.linspace(0, 1, _PARTS + 1)[1:-1])
    part = np.searchsorted(edges, tokens.positions, side="left")
    found = []
    for number in np.unique(part):
        chosen = part == number
        inside = tokens.positions[chosen]
        ends = {"first": int(inside.min()), "last": int(inside.max())}
        found.append({**ends, **measures(tokens, chosen)})
    return found


def by_value(tokens: ScoredTokens, name: str) -> list[dict[str, float]]:
    """The measures of the tokens with each value of ``temperature`` or ``versions``, ascending."""
    values = getattr(tokens, name)
    return [{name: each.item(), **measures(tokens, values == each)} for each in np.unique(values)]


def worst(
    tokens: ScoredTokens, names: Sequence[str], text_of: Callable[[int], str], count: int = 20
) -> list[dict[str, Any]]:
    """The tokens that lie furthest apart, those that are not finite before all others: rollout,
    position, id, text and both log-probabilities (null where not finite)."""
    gap = np.where(_finite(tokens), np.abs(_gap(tokens)), np.inf)
    order = np.argsort(-gap, kind="stable")[:count]
    return [
        {
            "rollout": names[tokens.rollouts[at]],
            "position": int(tokens.positions[at]),
            "token": int(tokens.ids[at]),
            "text": text_of(int(tokens.ids[at])),
            "engine": _number(tokens.engine[at]),
            "trainer": _number(tokens.trainer[at]),
        }
        for at in order
    ]


def _gap(tokens: ScoredTokens) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # infinity less infinity; the caller leaves it out
        return tokens.engine - tokens.trainer


def _finite(tokens: ScoredTokens) -> BoolArray:
    return np.isfinite(tokens.engine) & np.isfinite(tokens.trainer)


def _number(value: np.float64) -> float | None:
    return float(value) if np.isfinite(value) else None
