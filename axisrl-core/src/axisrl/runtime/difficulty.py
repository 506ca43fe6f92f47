"""Difficulty: how often each task succeeds, learnt from its own rollouts, and how wanted it is.

1. A task's success is a moving mean of its rewards, on a scale from the lowest to the highest
   reward of the run. The scale is applied when a task is weighed, so a wider one moves all tasks.
2. Weights (:class:`axisrl.config.schema.SamplerConfig`), with s the success: ``no_easy`` 1, or 0
   where s > easy_above; ``low_success`` max(1 - s, floor); ``intermediate``
   max(4 s (1 - s), floor). The most wanted task weighs 1 in each; so does one never played.
3. While all rewards of the run are equal there is no scale, and every task weighs 1.

It draws nothing: that is :mod:`axisrl.runtime.sampler`. Arrays are (tasks,), by dataset index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axisrl.config.schema import SamplerConfig

Doubles = NDArray[np.float64]


class Difficulty:
    """What is known of ``tasks`` tasks."""

    def __init__(self, tasks: int, config: SamplerConfig) -> None:
        self._config = config
        self._mean: Doubles = np.full(tasks, np.nan)
        """Moving mean reward; NaN where never played."""
        self._low, self._high = math.inf, -math.inf
        self._weights: Doubles | None = None

    def observe(self, index: int, rewards: Sequence[float]) -> None:
        """Take in the rewards (one or more) of a task's group."""
        mean, before = math.fsum(rewards) / len(rewards), self._mean[index]
        if not math.isnan(before):
            mean = self._config.memory * before + (1 - self._config.memory) * mean
        self._mean[index] = mean
        self._low, self._high = min(self._low, *rewards), max(self._high, *rewards)
        self._weights = None

    @property
    def weights(self) -> Doubles:
        """How much each task is wanted: 0 to 1."""
        if self._weights is None:
            self._weights = self._weighed()
        return self._weights

    def metrics(self) -> dict[str, float]:
        """``seen_frac`` of all tasks; ``success_mean`` and ``easy_frac`` of the seen ones, once
        there is a scale."""
        success = self._success()
        seen = ~np.isnan(self._mean)
        found = {"seen_frac": float(seen.mean())}
        if success is not None:
            found["success_mean"] = float(success[seen].mean())
            found["easy_frac"] = float((success[seen] > self._config.easy_above).mean())
        return found

    def state_dict(self) -> dict[str, Any]:
        """All of it; JSON."""
        seen = np.flatnonzero(~np.isnan(self._mean))
        if not len(seen):
            return {}
        return {
            "seen": seen.tolist(),
            "mean": self._mean[seen].tolist(),
            "range": [self._low, self._high],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be what :meth:`state_dict` described; an empty state knows nothing."""
        self._mean[:] = np.nan
        self._mean[np.asarray(state.get("seen", ()), np.int64)] = state.get("mean", ())
        self._low, self._high = state.get("range", (math.inf, -math.inf))
        self._weights = None

    def _success(self) -> Doubles | None:
        """0 to 1, NaN where never played; None while there is no scale."""
        if not self._low < self._high or math.isclose(self._low, self._high, rel_tol=1e-9):
            return None  # what rounding leaves between equal rewards is no scale
        scaled: Doubles = (self._mean - self._low) / (self._high - self._low)
        return scaled.clip(0.0, 1.0)

    def _weighed(self) -> Doubles:
        success, config = self._success(), self._config
        if success is None:
            return np.ones(len(self._mean))
        if config.strategy == "no_easy":
            return np.where(success > config.easy_above, 0.0, 1.0)
        wanted = 1 - success if config.strategy == "low_success" else 4 * success * (1 - success)
        return np.where(np.isnan(success), 1.0, np.maximum(wanted, config.floor))
