"""Token sequences, batches and losses with which engines and trainers are tried. No plugin's packer
or loss is involved: what breaks is the component under test.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from axisrl.protocols.loss import Level, LossInputs, LossResult
from axisrl.protocols.model import ModelSource
from axisrl.runtime.batch import with_weights
from axisrl.runtime.trajectory import Trajectory
from axisrl.testing.harness import Subject
from axisrl.trace import Trace
from axisrl.types import (
    Aggregation,
    FloatArray,
    GenerateResult,
    IntArray,
    ModelSpec,
    PackedBatch,
    Sample,
    SamplingParams,
)

_COLUMNS = (
    "ids",
    "labels",
    "loss_mask",
    "advantages",
    "rollout_logprobs",
    "versions",
    "temperature",
    "weights",
    "old_logprobs",
    "reference_logprobs",
    "returns",
    "old_values",
    "experts_at",
)


def model_spec(subject: Subject[Any]) -> ModelSpec:
    """The case's model, fetched into the subject's folder; float32."""
    name = subject.case.model
    source: ModelSource = subject.build_other("model", name)
    path = source.fetch(subject.work_dir / "models")
    return ModelSpec(name=name, path=path, device=subject.case.device)


def vocabulary(model: ModelSpec) -> int:
    """``vocab_size`` of the model's config.json."""
    config = json.loads((model.path / "config.json").read_text(encoding="utf-8"))
    return int(config["vocab_size"])


def prompts(model: ModelSpec, count: int, *, seed: int = 0) -> list[IntArray]:
    """``count`` prompts of 3 to 12 random tokens."""
    rng = np.random.default_rng([30, seed])
    size = vocabulary(model)
    return [rng.integers(0, size, rng.integers(3, 13)).astype(np.int32) for _ in range(count)]


def sample_of(
    prompt: IntArray, result: GenerateResult, trajectory: int, temperature: float = 1.0
) -> Sample:
    """The trainer's row of a prompt and what was sampled after it; advantage 1."""
    trace = Trace()
    root = trace.append("prompt", prompt, parent=None)
    trace.append_sampled(
        result, parent=root, sampling=SamplingParams(temperature=temperature), seed=0
    )
    return Trajectory(trace, trajectory).with_columns(advantages=np.ones((), np.float32))[0]


def random_samples(
    model: ModelSpec, count: int, *, temperature: float = 1.0, seed: int = 0
) -> list[Sample]:
    """Rows of random prompts and random answers of 2 to 6 tokens."""
    rng = np.random.default_rng([31, seed])
    size = vocabulary(model)
    samples = []
    for trajectory, prompt in enumerate(prompts(model, count, seed=seed)):
        ids = rng.integers(0, size, rng.integers(2, 7)).astype(np.int32)
        result = GenerateResult(
            ids=ids,
            logprobs=np.full(len(ids), -np.log(size), np.float32),
            versions=np.zeros(len(ids), np.int32),
            finish_reason="length",
        )
        samples.append(sample_of(prompt, result, trajectory, temperature))
    return with_weights(samples, "token_mean", 0)


def packed(samples: Sequence[Sample]) -> PackedBatch:
    """The samples end to end in one batch, in order."""
    lengths = [len(sample.ids) for sample in samples]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(sample, name) for sample in samples])
        for name in _COLUMNS
        if getattr(samples[0], name) is not None
    }
    trajectories = [np.full(len(s.ids), s.trajectory, np.int32) for s in samples]
    return PackedBatch(
        rank=0,
        rows=tuple(range(len(samples))),
        row_starts=np.cumsum([0, *lengths]).astype(np.int32),
        positions=np.concatenate([np.arange(n) for n in lengths]).astype(np.int32),
        columns=columns | {"trajectory": np.concatenate(trajectories)},
        handles=tuple(sample.handles for sample in samples) if samples[0].handles else (),
    )


def trained(batch: PackedBatch, per_token: FloatArray) -> FloatArray:
    """The entries of an array (N,) at trained tokens."""
    return cast(FloatArray, per_token[batch.columns["loss_mask"]])


@dataclass(slots=True)
class PullLoss:
    """Minus the advantage times the log-probability: raises what has advantage 1."""

    needs: frozenset[str] = frozenset()
    level: Level = "token"
    aggregation: Aggregation = "token_mean"
    sequence_norm: int = 1

    def __call__(self, batch: LossInputs) -> LossResult:
        """``-A lp`` where trained, 0 elsewhere."""
        import torch

        zeros_N = torch.zeros_like(batch.logprobs_N)
        pull_N = torch.where(batch.mask_N, batch.logprobs_N, zeros_N)
        advantages_N = torch.where(batch.mask_N, batch.advantages_N, zeros_N)
        return LossResult(per_token_N=-advantages_N * pull_N)


@dataclass(slots=True)
class RatioLoss:
    """Needs the old log-probabilities and remembers how far the current ones are from them."""

    needs: frozenset[str] = frozenset({"old_logprobs"})
    level: Level = "token"
    aggregation: Aggregation = "token_mean"
    sequence_norm: int = 1
    worst: list[float] = field(default_factory=list)
    """Largest distance in each batch; NaN where none were given."""

    def __call__(self, batch: LossInputs) -> LossResult:
        """``-A exp(lp - old)`` where trained, 0 elsewhere."""
        import torch

        if batch.old_logprobs_N is None:
            self.worst.append(float("nan"))
            return PullLoss()(batch)
        zeros_N = torch.zeros_like(batch.logprobs_N)
        gap_N = torch.where(batch.mask_N, batch.logprobs_N - batch.old_logprobs_N, zeros_N)
        self.worst.append(float(gap_N.detach().abs().max()))
        advantages_N = torch.where(batch.mask_N, batch.advantages_N, zeros_N)
        return LossResult(
            per_token_N=torch.where(batch.mask_N, -advantages_N * gap_N.exp(), zeros_N)
        )


@dataclass(slots=True)
class ValueLoss:
    """Squared distance of the value from the return; keeps the inputs it got."""

    needs: frozenset[str] = frozenset({"values"})
    level: Level = "token"
    aggregation: Aggregation = "token_mean"
    sequence_norm: int = 1
    seen: list[LossInputs] = field(default_factory=list)

    def __call__(self, batch: LossInputs) -> LossResult:
        """``(V - R)^2`` where trained, 0 elsewhere. Raises ``ValueError`` without either."""
        import torch

        if batch.values_N is None or batch.returns_N is None:
            raise ValueError("a value loss got no values or no returns")
        # A graph that is kept keeps the model's weights.
        self.seen.append(dataclasses.replace(batch, values_N=batch.values_N.detach()))
        zeros_N = torch.zeros_like(batch.values_N)
        gap_N = torch.where(batch.mask_N, batch.values_N - batch.returns_N, zeros_N)
        return LossResult(per_token_N=gap_N.square())
