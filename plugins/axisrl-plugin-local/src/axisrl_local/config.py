"""Options of the engine. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from axisrl.config.base import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig(Config):
    """Options of ``local/engine``."""

    max_batch: int = 64
    """Requests that run at once; the KV cache has so many slots."""
    max_context: int = 2048
    """Most tokens of a prompt and its answer; the model's own limit holds when it is lower."""
    step_tokens: int = 64
    """Most tokens computed in one forward pass: of prompts first, then one for each request that
    decodes. More of them speed up long prompts; at least ``max_batch``."""
    batch_invariant: bool = True
    """Every forward pass computes exactly ``step_tokens`` rows, so that a request's tokens and
    logprobs are bit-identical whatever else runs. False computes no idle rows."""

    def __post_init__(self) -> None:
        if self.max_batch < 1 or self.max_context < 2:
            raise ValueError(
                f"max_batch {self.max_batch} must be >= 1 and max_context {self.max_context} >= 2"
            )
        if self.step_tokens < self.max_batch:
            raise ValueError(f"step_tokens {self.step_tokens} is below max_batch {self.max_batch}")
