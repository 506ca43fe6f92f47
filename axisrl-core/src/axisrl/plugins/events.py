"""Payloads of the lifecycle hooks: frozen, small, never the tokens themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from axisrl.types import RolloutSummary, StepStats


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """The run, once everything is up."""

    name: str
    recipe: str
    run_dir: Path
    seed: int
    config: Mapping[str, Any]
    resumed_from: int | None = None
    """Step of the checkpoint, or None for a fresh run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker process at the end of its start."""

    role: str
    rank: int
    host: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFinished:
    """One rollout came home."""

    summary: RolloutSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPacked:
    """A step's rows are packed."""

    step: int
    rows: int
    tokens: int
    trained_tokens: int
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """An optimizer step is done."""

    step: int
    stats: StepStats


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsUpdated:
    """Every engine echoed the version and the checksum."""

    version: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved:
    """The marker file is written."""

    step: int
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The run is over, however it ended."""

    outcome: str
    error: str = ""
