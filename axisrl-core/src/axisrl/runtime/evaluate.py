"""Evaluation: greedy accuracy and pass@k on held-out tasks, with 95 % confidence intervals.

Greedy accuracy is a share of independent tasks: Wilson's score interval (1927). pass@k is the
unbiased estimator of Chen et al. (arXiv 2107.03374) averaged over tasks, its interval by a seeded
bootstrap over tasks. A rollout that failed for reasons that are not the policy's is left out of
both and counted in ``eval/failed_frac``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from axisrl.config.schema import EvalConfig, SamplingConfig
from axisrl.protocols import TaskDataset
from axisrl.runtime.pool import GroupPlan, RolloutPool
from axisrl.types import RolloutSummary, SamplingParams


class Interval(NamedTuple):
    """An estimate and its 95 % bounds."""

    value: float
    low: float
    high: float


class EvalResult(NamedTuple):
    """``eval/*`` metrics and the rollouts behind them, greedy ones first."""

    metrics: Mapping[str, float]
    rollouts: Sequence[RolloutSummary]


class Evaluator:
    """Plays the same held-out tasks, with the same seeds, every time."""

    def __init__(
        self,
        config: EvalConfig,
        dataset: TaskDataset,
        pool: RolloutPool,
        sampling: SamplingConfig,
        *,
        judged: bool = True,
    ) -> None:
        """Without a verifier (``judged`` False) nothing passes or fails: rewards alone are
        measured."""
        count = min(config.tasks or len(dataset), len(dataset))
        self._tasks = [dataset[index] for index in range(count)]
        self._samples = config.samples
        self._pool = pool
        self._judged = judged
        self._sampling = SamplingParams(**dataclasses.asdict(sampling))

    async def run(self) -> EvalResult:
        """Evaluate the weights the engines serve now."""
        greedy_sampling = dataclasses.replace(self._sampling, temperature=0.0)
        greedy = [one for group in await self._play(1, 0, greedy_sampling) for one in group]
        metrics, played = _greedy_metrics(greedy, self._judged), greedy
        if self._samples > 1:
            drawn = await self._play(self._samples, len(self._tasks), self._sampling)
            if self._judged:
                metrics |= _sampled_metrics(drawn, self._samples)
            played = [*greedy, *(one for group in drawn for one in group)]
        failed = sum(one.reward is None for one in played)
        return EvalResult({**metrics, "eval/failed_frac": failed / len(played)}, played)

    async def _play(
        self, size: int, first: int, sampling: SamplingParams
    ) -> list[list[RolloutSummary]]:
        plans = [
            GroupPlan(number=first + index, task=task, size=size)
            for index, task in enumerate(self._tasks)
        ]
        return await self._pool.play("eval", plans, sampling)


def wilson(passed: int, total: int) -> Interval:
    """Wilson's 95 % score interval of a share. ``total`` is at least 1."""
    z, share = 1.959964, passed / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total**2)) / (1 + z * z / total)
    return Interval(share, max(centre - half, 0.0), min(centre + half, 1.0))


def pass_at_k(passed: int, drawn: int, k: int) -> float:
    """Chance that k of ``drawn`` samples, ``passed`` of them right, hold a right one. 1 <= k <=
    drawn."""
    return 1.0 - math.comb(drawn - passed, k) / math.comb(drawn, k)


def bootstrap_mean(values: Sequence[float], *, seed: int = 0, rounds: int = 1000) -> Interval:
    """The mean with a percentile bootstrap interval over its terms."""
    array = np.asarray(values, np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(array), (rounds, len(array)))
    low, high = np.percentile(array[drawn].mean(axis=1), (2.5, 97.5))
    return Interval(float(array.mean()), float(low), float(high))


def _greedy_metrics(greedy: Sequence[RolloutSummary], judged: bool) -> dict[str, float]:
    usable = [one for one in greedy if one.reward is not None]
    if not usable:
        return {}
    metrics: dict[str, float] = {}
    if judged:
        passed = sum(one.passed for one in usable)
        metrics |= _spread("eval/accuracy", wilson(passed, len(usable)))
    metrics["eval/reward"] = float(np.mean([one.reward for one in usable]))
    metrics["eval/tokens_mean"] = float(np.mean([one.sampled_tokens for one in usable]))
    return metrics


def _sampled_metrics(groups: Sequence[Sequence[RolloutSummary]], k: int) -> dict[str, float]:
    metrics: dict[str, float] = {}
    # A task that lost samples to failures can only speak for as many as it has left.
    usable = [[one.passed for one in group if one.reward is not None] for group in groups]
    for size in sorted({1, k}):
        scores = [pass_at_k(sum(g), len(g), size) for g in usable if len(g) >= size]
        if scores:
            metrics |= _spread(f"eval/pass@{size}", bootstrap_mean(scores))
    return metrics


def _spread(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
