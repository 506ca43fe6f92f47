"""RunConfig: the keys of a run. What a component itself can be told is in that component's own
config dataclass.

Three short forms are accepted everywhere: ``env: gsm8k/math`` for ``env: {use: gsm8k/math}``,
``model: tiny`` for ``model: {name: tiny}`` and ``placement: ray`` for ``placement: {kind: ray}``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from axisrl.config.base import Config
from axisrl.config.learning import (
    EntropyConfig,
    KlConfig,
    OfflineConfig,
    SamplerConfig,
    TeacherConfig,
    ValueConfig,
)
from axisrl.config.modes import MODES, Mode
from axisrl.config.placement import PlacementConfig
from axisrl.config.rewards import check_reward_weights
from axisrl.config.schedule import ScheduleConfig
from axisrl.config.services import check_service_names
from axisrl.config.use import ModelConfig, ServiceUse, Use, above_zero, at_least, needed

__all__ = [
    "CheckpointConfig",
    "EntropyConfig",
    "EvalConfig",
    "KlConfig",
    "ModelConfig",
    "OfflineConfig",
    "PlacementConfig",
    "RolloutConfig",
    "RunConfig",
    "SamplerConfig",
    "SamplingConfig",
    "ScheduleConfig",
    "ServiceUse",
    "TeacherConfig",
    "TrainConfig",
    "Use",
    "ValueConfig",
    "needed",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingConfig(Config):
    """How tokens are drawn."""

    temperature: float = 1.0
    """0 is greedy (evaluation only: a greedy policy has nothing to learn from)."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is off."""
    min_p: float = 0.0
    max_tokens: int = 256
    """Most tokens of one model call."""
    stop: tuple[str, ...] = ()
    """Strings that end a turn."""

    def __post_init__(self) -> None:
        at_least(0, temperature=self.temperature, top_k=self.top_k)
        at_least(1, max_tokens=self.max_tokens)
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p {self.top_p} is not in (0, 1]")
        if not 0 <= self.min_p < 1:
            raise ValueError(f"min_p {self.min_p} is not in [0, 1)")


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutConfig(Config):
    """How episodes are played."""

    group_size: int = 8
    """Rollouts of one task."""
    min_group_size: int = 2
    """A group with fewer usable rollouts is dropped and counted."""
    max_turns: int = 1
    """Model calls of one rollout; at the limit the outcome is ``truncated``."""
    max_context: int = 4096
    """Tokens of one path; a rollout that reaches it is ``truncated``."""
    sampling: SamplingConfig = SamplingConfig()
    workers: int = 1
    """Rollout worker processes (``placement: ray``)."""
    max_inflight: int = 64
    """Rollouts that run at once in one worker."""
    boot_timeout_s: float = 60.0
    """Building and resetting an environment."""
    run_timeout_s: float = 600.0
    """All turns of one rollout."""
    score_timeout_s: float = 60.0
    """Each verifier and each reward, on its own clock: scoring is still possible when the run's
    time is up."""
    routing: bool = False
    """Keep which experts of a mixture the engine's router chose for each token, so that a trainer
    can choose them again (R3, arXiv 2510.11370). Evaluations do not."""
    max_failed_fraction: float = 0.3
    """The run stops when more than this share of a window's or an evaluation's rollouts failed for
    reasons that are not the policy's."""

    def __post_init__(self) -> None:
        at_least(
            1,
            group_size=self.group_size,
            min_group_size=self.min_group_size,
            max_turns=self.max_turns,
            max_context=self.max_context,
            workers=self.workers,
            max_inflight=self.max_inflight,
        )
        above_zero(
            boot_timeout_s=self.boot_timeout_s,
            run_timeout_s=self.run_timeout_s,
            score_timeout_s=self.score_timeout_s,
        )
        if not 0 <= self.max_failed_fraction <= 1:
            raise ValueError(f"max_failed_fraction {self.max_failed_fraction} is not in [0, 1]")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig(Config):
    """How much is learnt from what."""

    updates: int = 100
    """Optimizer steps of the whole run; ``mode: rollout`` plays what they would learn from."""
    batch_size: int = 64
    """Rollouts of one optimizer step; a multiple of ``rollout.group_size``."""
    updates_per_sync: int = 1
    """Optimizer steps taken from one window of rollouts before the engines get new weights."""
    max_tokens_per_batch: int = 4096
    """Tokens of one packed micro-batch."""
    zero_std_groups: Literal["keep", "drop"] = "keep"
    """Groups whose rewards are all equal: kept (advantage 0, in every denominator) or dropped and
    counted."""

    def __post_init__(self) -> None:
        at_least(0, updates=self.updates)
        at_least(
            1,
            batch_size=self.batch_size,
            updates_per_sync=self.updates_per_sync,
            max_tokens_per_batch=self.max_tokens_per_batch,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalConfig(Config):
    """Held-out evaluation: greedy once, and pass@k where ``samples`` > 1."""

    dataset: Use
    every: int = 0
    """Updates between evaluations; 0 is only at the end."""
    at_start: bool = True
    """Before the first update."""
    tasks: int = 0
    """First so many tasks; 0 is all."""
    samples: int = 1
    """k of pass@k, drawn with ``rollout.sampling``; 1 is the greedy pass alone."""
    save_rollouts: bool = True
    """Keep every evaluation rollout in ``rollouts/eval-*.jsonl``."""

    def __post_init__(self) -> None:
        at_least(0, every=self.every, tasks=self.tasks)
        at_least(1, samples=self.samples)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig(Config):
    """When the run is saved. The end of the run and SIGTERM always save."""

    every: int = 50
    """Updates between checkpoints; 0 is only at the end."""
    keep: int = 2
    """Newest checkpoints kept."""

    def __post_init__(self) -> None:
        at_least(0, every=self.every)
        at_least(1, keep=self.keep)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig(Config):
    """A whole run."""

    name: str = ""
    """Name of the run folder; empty makes one from the recipe and the time."""
    mode: Mode = "train"
    """``train``: play rollouts and learn from them. ``train_offline``: learn from what is already
    there (``offline``); env and engine are used by evaluations alone. ``rollout``: play and write
    the rollouts of ``train.updates`` updates, and learn nothing. ``eval``: evaluate once.
    ``mismatch``: how far engine and trainer disagree on one window's tokens, played or read
    (``offline``). What a mode does not use need not be there."""
    seed: int = 0
    model: ModelConfig
    dataset: Use | None = None
    env: Use | None = None
    verifiers: dict[str, Use] = field(default_factory=dict)
    """Name of the verdict -> verifier."""
    rewards: dict[str, Use] = field(default_factory=lambda: {"main": Use(use="core/sum")})
    """Name -> reward; what a rollout earns is their weighted sum."""
    reward_weights: dict[str, float] = field(default_factory=dict)
    """Name of a reward -> its factor; one that is not named counts 1."""
    services: dict[str, ServiceUse] = field(default_factory=dict)
    """Name -> service: a retrieval index, a reward model. Environments, verifiers and rewards call
    it by that name, wherever they run."""
    advantage: Use | None = None
    loss: Use | None = None
    corrections: tuple[Use, ...] = ()
    """Applied to the policy's loss in this order."""
    kl: KlConfig = KlConfig()
    entropy: EntropyConfig = EntropyConfig()
    value: ValueConfig | None = None
    teacher: TeacherConfig | None = None
    packer: Use = Use(use="core/linear")
    store: Use = Use(use="core/shm")
    engine: Use | None = None
    trainer: Use | None = None
    loggers: tuple[Use, ...] = (Use(use="core/console"), Use(use="core/jsonl"))
    sampler: SamplerConfig = SamplerConfig()
    offline: OfflineConfig = OfflineConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    rollout: RolloutConfig = RolloutConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig | None = None
    checkpoint: CheckpointConfig = CheckpointConfig()
    placement: PlacementConfig = PlacementConfig()
    plugins: tuple[str, ...] = ()
    """Plugins to activate besides those the components name (observers)."""

    def __post_init__(self) -> None:
        check_reward_weights(self.rewards, self.reward_weights)
        check_service_names(self.services)
        for name in self.needs:
            needed(getattr(self, name), name, f" in mode {self.mode}")
        if self.mode != "eval":
            self._check_window()
            self._check_sampling()
        if "trainer" in self.needs:
            self._check_batch()
        if "loss" in self.needs:
            self._check_value()
        self._check_mode()

    def _check_window(self) -> None:
        """Whole groups, whole batches."""
        rollout, train = self.rollout, self.train
        group, least, batch = rollout.group_size, rollout.min_group_size, train.batch_size
        if batch % group:
            raise ValueError(
                f"train.batch_size {batch} is not a multiple of rollout.group_size {group}"
            )
        if least > group:
            raise ValueError(f"rollout.min_group_size {least} is over group_size {group}")
        if train.updates % train.updates_per_sync:
            raise ValueError(
                f"train.updates {train.updates} is not a multiple of "
                f"train.updates_per_sync {train.updates_per_sync}"
            )

    def _check_batch(self) -> None:
        # A value model reads one position more: the state after the last token.
        longest = self.rollout.max_context - (0 if self.value else 1)
        if self.train.max_tokens_per_batch < longest:
            raise ValueError(
                f"train.max_tokens_per_batch {self.train.max_tokens_per_batch} is too small for a "
                f"rollout of rollout.max_context {self.rollout.max_context} tokens"
            )

    def _check_sampling(self) -> None:
        sampling = self.rollout.sampling
        if sampling.temperature == 0:
            raise ValueError("rollout.sampling.temperature 0 is greedy: nothing can be learnt")
        if sampling.top_p < 1 or sampling.top_k or sampling.min_p:
            raise ValueError(
                "rollout.sampling top_p, top_k and min_p cut the distribution that is sampled, "
                "while the trainer scores tokens under the whole one: leave them off when training"
            )

    def _check_mode(self) -> None:
        """What cannot be, does nothing or drops everything in this mode."""
        if self.placement.colocate and self.schedule.kind == "async":
            raise ValueError(
                "placement.colocate lets engines and trainers take turns, and schedule.kind async "
                "keeps both at work: leave one of them out"
            )
        offline, replays = self.mode == "train_offline", bool(self.offline.rollouts)
        if replays and self.mode not in ("train_offline", "mismatch"):
            raise ValueError(
                "offline.rollouts has no effect unless mode is train_offline or mismatch"
            )
        if offline and self.sampler.strategy != "uniform":
            raise ValueError(
                f"sampler.strategy {self.sampler.strategy} learns from rollouts that are played, "
                "and mode train_offline plays none"
            )
        alone = self.rollout.group_size == 1 or (offline and not replays)
        if self.train.zero_std_groups == "drop" and alone:
            what = "conversation" if offline and not replays else "group of one rollout"
            raise ValueError(
                f"train.zero_std_groups drop would drop every {what}: its rewards are all equal"
            )

    def _check_value(self) -> None:
        warmup = self.value.warmup_updates if self.value else 0
        if warmup and warmup >= self.train.updates:
            raise ValueError(
                f"value.warmup_updates {warmup} leaves none of train.updates {self.train.updates} "
                "for the policy"
            )
        if warmup % self.train.updates_per_sync:
            raise ValueError(
                f"value.warmup_updates {warmup} is not a multiple of train.updates_per_sync "
                f"{self.train.updates_per_sync}: a window is learnt from by both models or by one"
            )

    @property
    def needs(self) -> tuple[str, ...]:
        """Keys of the parts that this run cannot do without."""
        mode, trains = MODES[self.mode], "loss" in MODES[self.mode].always
        parts = mode.always if self.offline.rollouts else mode.always + mode.unless_replayed
        if self.eval is not None and trains:
            parts += ("env", "engine")
        return tuple(dict.fromkeys(parts))

    @property
    def replays(self) -> bool:
        """Whether training windows are read: from saved rollouts, or from conversations."""
        return self.mode == "train_offline" or bool(self.offline.rollouts)

    @property
    def models(self) -> dict[str, int]:
        """Processes of each model that is trained or scores, by role, where there are any. A
        reference that only the loss itself asks for is not known before it is built."""
        ranks = self.placement.trainer_ranks
        if "loss" not in self.needs:
            return {"trainer": 1} if "trainer" in self.needs else {}
        asked = {
            "trainer": ranks,
            "value": ranks if self.value else 0,
            "reference": 1 if self.kl.coef and self.kl.base == "reference" else 0,
            "teacher": 1 if self.teacher else 0,
        }
        return {role: count for role, count in asked.items() if count}

    @property
    def groups_per_window(self) -> int:
        """Tasks dispatched for one window of rollouts."""
        return self.train.batch_size * self.train.updates_per_sync // self.rollout.group_size
