"""Options of the engine. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from axisrl.config.base import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig(Config):
    """Options of ``local/engine``."""

    max_batch: int = 64
    """Requests that decode at once; the KV cache has so many rows."""
    max_context: int = 2048
    """Most tokens of a prompt and its answer; the cache grows up to it, in steps of 64."""

    def __post_init__(self) -> None:
        if self.max_batch < 1 or self.max_context < 2:
            raise ValueError(
                f"max_batch {self.max_batch} must be >= 1 and max_context {self.max_context} >= 2"
            )
