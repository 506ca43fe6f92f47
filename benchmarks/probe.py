"""Runs the local engine and the local trainer by themselves, on random tokens, for ``roofline.py``.

It keeps no time. Prompts differ in every call: nothing is served from the engine's prefix cache.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from axisrl.builtin.linear_packer import LinearPacker
from axisrl.config.base import NoConfig
from axisrl.runtime.batch import with_weights
from axisrl.types import (
    BuildContext,
    GenerateRequest,
    GenerateResult,
    IntArray,
    ModelSpec,
    PackBudget,
    Sample,
    SamplingParams,
)
from axisrl_grpo.config import GrpoLossConfig
from axisrl_grpo.losses.grpo import GrpoLoss
from axisrl_local.config import EngineConfig
from axisrl_local.engine import LocalEngine
from axisrl_local.trainer import LocalTrainer
from axisrl_local.trainer_config import TrainerConfig

_STEPS = 1_000_000
_HIGHEST = 90
"""Random token ids stay below it: the smallest vocabulary has about a hundred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Tokens that were computed: ``body`` went through the layers, ``head`` needed logits."""

    body: int
    head: int
    backward: bool = False


class EngineProbe:
    """A started ``local/engine`` with room for ``rows`` requests."""

    def __init__(self, spec: ModelSpec, config: EngineConfig, work: Path) -> None:
        self._rows = config.max_batch
        self._rng = np.random.default_rng(0)
        self._loop = asyncio.Runner()
        self._engine = LocalEngine(config, BuildContext(run_dir=work))
        self._loop.run(self._engine.start(spec))

    def run(self, prompt: int, answer: int) -> Work:
        """Every row: a prompt of so many tokens, an answer of so many."""
        results = self._loop.run(self._generate(prompt, answer))
        sampled = sum(len(result.ids) for result in results)
        # The last token of an answer is sampled and not computed any further.
        return Work(body=self._rows * (prompt - 1) + sampled, head=sampled)

    def stop(self) -> None:
        """Free the model."""
        self._loop.run(self._engine.stop())
        self._loop.close()

    async def _generate(self, prompt: int, answer: int) -> list[GenerateResult]:
        ids = self._rng.integers(4, _HIGHEST, (self._rows, prompt), dtype=np.int32)
        calls = (self._engine.generate(_request(row, answer)) for row in ids)
        return await asyncio.gather(*calls)


class TrainerProbe:
    """A started ``local/trainer`` and a batch for it."""

    def __init__(self, spec: ModelSpec, samples: list[Sample], budget: int, work: Path) -> None:
        context = BuildContext(run_dir=work)
        self._loss = GrpoLoss(GrpoLossConfig(), context)
        weighted = with_weights(samples, self._loss.aggregation, self._loss.sequence_norm)
        packer = LinearPacker(NoConfig(), context)
        self._batches = packer.pack(weighted, PackBudget(max_tokens=budget))
        self._trainer = LocalTrainer(TrainerConfig(), context)
        self._trainer.start(spec, _STEPS)

    def run(self) -> Work:
        """One update."""
        stats = self._trainer.step(self._batches, self._loss)
        return Work(body=stats.tokens, head=stats.trained_tokens, backward=True)

    def stop(self) -> None:
        """Free the model."""
        self._trainer.stop()


def random_samples(rows: int, prompt: int, answer: int) -> list[Sample]:
    """Rows of ``prompt`` and ``answer`` tokens that train on the answer."""
    rng = np.random.default_rng(0)
    return [_sample(row, rng, prompt, answer) for row in range(rows)]


def _sample(row: int, rng: np.random.Generator, prompt: int, answer: int) -> Sample:
    ids = rng.integers(4, _HIGHEST, prompt + answer, dtype=np.int32)
    tokens = len(ids) - 1
    mask = np.arange(tokens) >= prompt - 1
    return Sample(
        trajectory=row,
        ids=ids[:-1],
        labels=ids[1:],
        loss_mask=mask,
        advantages=np.where(mask, 1.0 if row % 2 else -1.0, 0.0).astype(np.float32),
        rollout_logprobs=np.full(tokens, -4.0, np.float32),
        versions=np.zeros(tokens, np.int32),
        temperature=np.ones(tokens, np.float32),
    )


def _request(prompt: IntArray, answer: int) -> GenerateRequest:
    return GenerateRequest(
        id="-".join(map(str, prompt[:8])),
        prompt_ids=prompt,
        sampling=SamplingParams(max_tokens=answer),
        seed=0,
    )
