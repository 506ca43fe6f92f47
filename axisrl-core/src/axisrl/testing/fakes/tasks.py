"""Tasks that :class:`axisrl.testing.fakes.EchoEnv` understands, and a verifier for them. Nothing is
parsed: an answer is right when it is the expected text."""

from __future__ import annotations

from dataclasses import dataclass

from axisrl.config.base import Config, NoConfig
from axisrl.protocols.verifier import Rollout
from axisrl.types import BuildContext, Task, Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class CountDatasetConfig(Config):
    """Options of :class:`CountDataset`."""

    size: int = 8
    """Tasks in one epoch."""


class CountDataset:
    """``Say 0.``, ``Say 1.``, ...; the answer is the number."""

    def __init__(self, config: CountDatasetConfig, context: BuildContext | None = None) -> None:
        self._size = config.size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self._size:
            raise IndexError(f"task {index} of {self._size}")
        return Task(id=f"count-{index}", data={"question": f"Say {index}.", "answer": str(index)})


class ExactVerifier:
    """Score 1 when the stripped answer equals ``task.data["answer"]``, else 0."""

    def __init__(self, config: NoConfig, context: BuildContext | None = None) -> None:
        pass

    async def verify(self, task: Task, rollout: Rollout) -> Verdict:
        """Compare. Raises ``KeyError`` when the task has no answer."""
        right = rollout.answer.strip() == str(task.data["answer"])
        return Verdict(score=float(right), passed=right, detail=rollout.answer[:80])
