"""Combines the rewards of a run into one: the weighted sum, with parts and turns that add up.

1. Every result is checked before it counts: a total, part or turn that is not finite, or another
   number of turns than the rollout has, is that reward's failure and never a number.
2. Parts are logged weighted. A reward called ``main``, or the only one, keeps the names of its
   parts; any other puts its own name before them, or gives it to its total when it has none.
3. Turn rewards add up over the rewards that give them. What a reward without them earned stays in
   the total, which is paid at the end (:class:`axisrl.types.RewardResult`).

It builds no reward.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping

from axisrl.errors import ConfigError, VerifierFailure
from axisrl.protocols import Reward, Rollout
from axisrl.types import RewardResult, Verdict

MAIN = "main"


async def earned(reward: Reward, rollout: Rollout, verdicts: Mapping[str, Verdict]) -> RewardResult:
    """What ``reward`` gives, whether or not it has to wait for it."""
    result = reward(rollout, verdicts)
    return await result if inspect.isawaitable(result) else result


def checked(name: str, result: RewardResult, turns: int) -> RewardResult:
    """The result of the reward ``name`` for a rollout of ``turns`` model calls, if it is sound.

    Raises ``VerifierFailure`` that names the reward otherwise.
    """
    per_turn = result.per_turn or ()
    numbers = {"total": result.total, **{f"part {key}": v for key, v in result.parts.items()}}
    numbers |= {f"turn {turn}": value for turn, value in enumerate(per_turn)}
    for what, value in numbers.items():
        if not math.isfinite(value):
            raise VerifierFailure(f"reward {name}: its {what} is {value}")
    if result.per_turn is not None and len(per_turn) != turns:
        raise VerifierFailure(
            f"reward {name} gave {len(per_turn)} turns of a rollout that has {turns}"
        )
    return result


def combined(results: Mapping[str, RewardResult], weights: Mapping[str, float]) -> RewardResult:
    """The weighted sum of checked results, by name; a name without a weight counts 1.

    Raises ``ConfigError`` when two rewards would log a part under one name.
    """
    factors = {name: weights.get(name, 1.0) for name in results}
    return RewardResult(
        total=math.fsum(factors[name] * result.total for name, result in results.items()),
        parts=_parts(results, factors),
        per_turn=_per_turn(results, factors),
    )


def _parts(results: Mapping[str, RewardResult], factors: Mapping[str, float]) -> dict[str, float]:
    parts: dict[str, float] = {}
    for name, result in results.items():
        for part, value in _named(name, result, alone=len(results) == 1).items():
            if part in parts:
                raise ConfigError(
                    f"rewards.{name} logs {part!r}, and so does another reward",
                    fix=f"give rewards.{name} another name",
                )
            parts[part] = factors[name] * value
    return parts


def _named(name: str, result: RewardResult, *, alone: bool) -> Mapping[str, float]:
    if alone:
        return result.parts
    if not result.parts:
        return {name: result.total}
    if name == MAIN:
        return result.parts
    return {f"{name}.{part}": value for part, value in result.parts.items()}


def _per_turn(
    results: Mapping[str, RewardResult], factors: Mapping[str, float]
) -> tuple[float, ...] | None:
    given = [
        [factors[name] * value for value in result.per_turn]
        for name, result in results.items()
        if result.per_turn is not None
    ]
    if not given:
        return None
    return tuple(math.fsum(turn) for turn in zip(*given, strict=True))
