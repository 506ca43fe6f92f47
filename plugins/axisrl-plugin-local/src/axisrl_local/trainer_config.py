"""Options of the trainer. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from axisrl.config.lora import LoraOptions
from axisrl.config.training import TrainingOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerConfig(TrainingOptions):
    """Options of ``local/trainer``."""

    master_weights: Literal["float32", "model"] = "float32"
    """What the optimizer updates: ``float32`` keeps such a copy of weights that compute in
    bfloat16; ``model`` updates them in their own type (less memory; small updates are lost)."""
    recompute: bool = False
    """Keep one activation a layer and compute the rest again in the backward pass."""
    lora: LoraOptions | None = None
    """Train a low-rank adapter (``rank``, ``alpha``, ``dropout``, ``targets``, ``update``) and keep
    the weights as they are; null trains the weights. A frozen model ignores it."""
