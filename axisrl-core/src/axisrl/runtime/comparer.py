"""ComparerActor: the trainer's model, frozen, beside what the engine said of the same tokens.

The arrays stay here; the driver gets the numbers (:mod:`axisrl.runtime.disagreement`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axisrl.protocols import HandleStore
from axisrl.runtime.actors import ActorBoot
from axisrl.runtime.chat import load_tokenizer
from axisrl.runtime.disagreement import ScoredTokens, by_position, by_value, measures, worst
from axisrl.runtime.frozen import FrozenActor
from axisrl.runtime.trajectory import Trajectory
from axisrl.types import FloatArray, RolloutGroup


class ComparerActor(FrozenActor):
    """Scores rollouts and says how far the recorded log-probabilities are from that."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        super().__init__(boot, store)
        self.replay_routing()

    async def compare(self, groups: Sequence[RolloutGroup]) -> dict[str, Any]:
        """JSON: ``all``, ``by_position``, ``by_temperature``, ``by_version`` and ``worst`` of the
        trained tokens."""
        self._experts.attach()
        trajectories = await self.trajectories(groups)
        samples = [sample for _, one in trajectories for sample in one.samples]
        rows = iter(await asyncio.to_thread(self.per_token, samples, self.backend.logprobs))
        tokens = _scored([one for _, one in trajectories], rows)
        tokenizer = load_tokenizer(self.boot.model.path)
        return {
            "all": measures(tokens),
            "by_position": by_position(tokens),
            "by_temperature": by_value(tokens, "temperature"),
            "by_version": by_value(tokens, "versions"),
            "worst": worst(
                tokens,
                [rollout for rollout, _ in trajectories],
                lambda token: tokenizer.decode([token], skip_special=False),
            ),
        }


def _scored(trajectories: Sequence[Trajectory], rows: Iterator[FloatArray]) -> ScoredTokens:
    """Rollout by rollout, each in the order its tokens were sampled."""
    columns: dict[str, list[Any]] = {}
    for number, one in enumerate(trajectories):
        samples = one.samples
        parts: dict[str, list[NDArray[Any]]] = {
            "engine": [sample.rollout_logprobs for sample in samples],
            "trainer": [next(rows) for _ in samples],
            "ids": [sample.labels for sample in samples],
            "positions": [np.arange(1, len(sample.ids) + 1) for sample in samples],
            "temperature": [sample.temperature for sample in samples],
            "versions": [sample.versions for sample in samples],
            "rollouts": [np.full(len(sample.ids), number) for sample in samples],
        }
        for name, each in parts.items():
            columns.setdefault(name, []).append(one.gather(each))
    floats = ("engine", "trainer", "temperature")
    arrays: dict[str, Any] = {
        name: np.concatenate(each).astype(np.float64 if name in floats else np.int64)
        for name, each in columns.items()
    }
    return ScoredTokens(**arrays)
