"""Options of the core's own components. Imports nothing but the config base."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from axisrl.config.base import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedMemoryConfig(Config):
    """``core/shm``."""

    folder: str = ""
    """Where the run's folder of arrays is made; empty is /dev/shm, or the temporary folder where
    that does not exist."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SumRewardConfig(Config):
    """``core/sum``."""

    weights: dict[str, float] = field(default_factory=dict)
    """Verifier name -> factor of its score; a verifier that is not named counts 1."""
    env_weights: dict[str, float] = field(default_factory=dict)
    """Reward part of the env -> factor. Empty counts every part 1; otherwise each part the env
    gives must be named (0 leaves it out)."""
    turn_level: bool = False
    """Credit env parts at the turn they were given in, instead of at the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthRewardConfig(Config):
    """``core/length``."""

    free_tokens: int = 0
    """Sampled tokens of a rollout that cost nothing."""
    coef: float = 0.001
    """Penalty of each sampled token beyond them."""
    cap: float = 1.0
    """Largest penalty."""

    def __post_init__(self) -> None:
        if self.free_tokens < 0 or self.coef <= 0 or self.cap <= 0:
            raise ValueError(
                f"free_tokens {self.free_tokens} must be >= 0, coef {self.coef} and cap "
                f"{self.cap} > 0"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class OverlongRewardConfig(Config):
    """``core/overlong``."""

    max_tokens: int
    """Sampled tokens of a rollout from which on the whole penalty is due."""
    cache_tokens: int
    """Length of the ramp below ``max_tokens`` over which it grows from nothing; 0 is a step."""
    penalty: float = 1.0
    """Largest penalty."""

    def __post_init__(self) -> None:
        if not 0 <= self.cache_tokens <= self.max_tokens:
            raise ValueError(
                f"cache_tokens {self.cache_tokens} is not in [0, max_tokens {self.max_tokens}]"
            )
        if self.penalty <= 0:
            raise ValueError(f"penalty {self.penalty} is not above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class TasksConfig(Config):
    """``core/tasks``."""

    path: str
    """JSONL file: one object a line; ``id`` is optional, all other fields are the task's data."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsoleConfig(Config):
    """``core/console``."""

    plain: bool = False
    """One line a step even in a terminal."""
    show_samples: int = 1
    """Rollouts printed each time; 0 prints none."""
    samples_every: int = 10
    """Steps between printed samples, from step 1 on."""
    sample_chars: int = 1500
    """Most characters printed of one message."""
    metrics: tuple[str, ...] = (
        "reward/mean",
        "rollout/passed_frac",
        "eval/accuracy",
        "eval/pass*",
        "loss/total",
        "loss/kl*",
        "loss/entropy",
        "loss/grad_norm",
        "rollout/tokens_mean",
        "train/tokens_per_s",
        "time/*",
    )
    """Metrics shown, in this order; ``*`` matches any rest. The others are in metrics.jsonl."""

    def __post_init__(self) -> None:
        if self.show_samples < 0 or self.samples_every < 1 or self.sample_chars < 1:
            raise ValueError(
                f"show_samples {self.show_samples} must be >= 0, samples_every "
                f"{self.samples_every} and sample_chars {self.sample_chars} >= 1"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class WandbConfig(Config):
    """``core/wandb``."""

    mode: Literal["offline", "online", "disabled"] = "offline"
    """``offline`` writes under the run folder for a later ``wandb sync``; ``disabled`` does
    nothing."""
    project: str = "axisrl"
    entity: str = ""
    """Team or user; empty is the account's default."""
    tags: tuple[str, ...] = ()
    api_key_env: str = "WANDB_API_KEY"
    """Name of the environment variable that holds the key; the key itself never is in a config."""
    table_rows: int = 4
    """Sample rollouts sent each time; 0 sends none."""
    table_every: int = 10
    """Steps between samples, from step 1 on."""
    table_chars: int = 2000
    """Most characters of one cell."""
    drain_timeout_s: float = 60.0
    """How long a checkpoint or the end of the run waits for what is still queued."""

    def __post_init__(self) -> None:
        if self.table_rows < 0 or self.table_every < 1 or self.table_chars < 1:
            raise ValueError(
                f"table_rows {self.table_rows} must be >= 0, table_every {self.table_every} and "
                f"table_chars {self.table_chars} >= 1"
            )
