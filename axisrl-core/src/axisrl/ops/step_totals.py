"""What one optimizer step measures, summed over its micro-batches.

Every trained token counts once, whatever its share of the loss, so that a clip fraction is a
fraction of tokens. It does not weigh or scale the loss itself.

Shapes: ``N`` tokens of a micro-batch, ``M`` trained ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from axisrl.protocols.loss import LossStat
from axisrl.types import Metric, StepStats

Reduce = Literal["mean", "sum", "min", "max"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """What one update of the weights did."""

    grad_norm: float
    """Before clipping."""
    learning_rate: float
    applied: bool
    """False when the gradient norm was not finite and the weights stayed as they were."""


@dataclass(slots=True)
class StepTotals:
    """Running totals; tensors stay on the device until ``finish``."""

    tokens: int = 0
    trained: int = 0
    _loss: Tensor | float = 0.0
    _stats: dict[tuple[str, Reduce], Tensor] = field(default_factory=dict)
    _counts: dict[tuple[str, Reduce], int] = field(default_factory=dict)
    """Trained tokens of the micro-batches that had the statistic."""

    def add_loss(self, loss: Tensor) -> None:
        """Add a micro-batch's share of the loss, shape ()."""
        self._loss = self._loss + loss.detach().double()

    def add_stats(self, stats: Mapping[str, LossStat], trained_M: Tensor) -> None:
        """Add a micro-batch's per-token statistics, read at the trained tokens alone."""
        for name, stat in stats.items():
            key = (name, stat.reduce)
            part = _reduced(stat.values_N.detach()[trained_M].double(), stat.reduce)
            self._add(key, part, len(trained_M))

    def add_fraction(self, name: str, part: int, whole: int) -> None:
        """Add ``part`` of ``whole`` things; the step's statistic is the fraction of all."""
        if whole:
            self._add((name, "mean"), torch.tensor(float(part), dtype=torch.float64), whole)

    def _add(self, key: tuple[str, Reduce], part: Tensor, count: int) -> None:
        seen = self._stats.get(key)
        self._stats[key] = part if seen is None else _merged(seen, part, key[1])
        self._counts[key] = self._counts.get(key, 0) + count

    def on_cpu(self) -> StepTotals:
        """The same, so that it can travel to another rank."""
        loss = float(self._loss)
        stats = {key: value.cpu() for key, value in self._stats.items()}
        return StepTotals(self.tokens, self.trained, loss, stats, dict(self._counts))

    @classmethod
    def over(cls, ranks: Sequence[StepTotals]) -> StepTotals:
        """Of all ranks together: as if one had seen every micro-batch."""
        whole = cls()
        for part in ranks:
            whole.tokens += part.tokens
            whole.trained += part.trained
            whole._loss = whole._loss + part._loss
            for key, value in part._stats.items():
                whole._add(key, value, part._counts[key])
        return whole

    def finish(self, report: UpdateReport) -> StepStats:
        """The step's statistics. ``total``, ``grad_norm``, ``lr`` and ``skipped_nonfinite`` are the
        trainer's own names."""
        metrics = {f"loss/{name}": self._metric(name, reduce) for name, reduce in self._stats}
        metrics |= {
            "loss/total": Metric(value=float(self._loss), reduce="sum"),
            "loss/grad_norm": Metric(value=report.grad_norm),
            "loss/lr": Metric(value=report.learning_rate),
            "loss/skipped_nonfinite": Metric(value=float(not report.applied), reduce="max"),
        }
        return StepStats(
            metrics=metrics,
            tokens=self.tokens,
            trained_tokens=self.trained,
            learning_rate=report.learning_rate,
            grad_norm=report.grad_norm,
        )

    def _metric(self, name: str, reduce: Reduce) -> Metric:
        value = float(self._stats[name, reduce])
        if reduce != "mean":
            return Metric(value=value, reduce=reduce)
        count = self._counts[name, reduce]
        return Metric(value=value / count, weight=float(count))


def _reduced(values_M: Tensor, reduce: Reduce) -> Tensor:
    if reduce == "min":
        return values_M.min()
    return values_M.max() if reduce == "max" else values_M.sum()


def _merged(seen: Tensor, part: Tensor, reduce: Reduce) -> Tensor:
    if reduce == "min":
        return torch.minimum(seen, part)
    return torch.maximum(seen, part) if reduce == "max" else seen + part
