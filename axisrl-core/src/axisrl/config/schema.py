"""RunConfig: the keys of a run. What a component itself can be told is in that component's own
config dataclass.

Three short forms are accepted everywhere: ``env: gsm8k/math`` for ``env: {use: gsm8k/math}``,
``model: tiny`` for ``model: {name: tiny}`` and ``placement: ray`` for ``placement: {kind: ray}``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from axisrl.config.base import Config
from axisrl.config.rewards import check_reward_weights


def _at_least(least: int, **values: float) -> None:
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name} {value} is below {least}")


def _above_zero(**values: float) -> None:
    for name, value in values.items():
        if value <= 0:
            raise ValueError(f"{name} {value} is not above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """``use: plugin/component`` and that component's own options beside it."""

    use: str
    options: dict[str, Any] = field(default_factory=dict)


def needed(use: Use | None, path: str) -> Use:
    """A component that this run cannot do without. Raises ``ValueError`` when it is not set."""
    if use is None:
        raise ValueError(f"{path} is required: set {path}")
    return use


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig(Config):
    """Which model is trained."""

    short_form: ClassVar[str] = "name"

    name: str
    """A folder, a named model (``tiny``, ``smollm2-135m``; see ``axisrl models``) or a Hugging
    Face id."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type the engine and the trainer compute in."""
    device: str = "auto"
    """``auto``: cuda when there is one, else cpu."""


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
        _at_least(0, temperature=self.temperature, top_k=self.top_k)
        _at_least(1, max_tokens=self.max_tokens)
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
    """Each verifier, on its own clock: scoring is still possible when the run's time is up."""
    max_failed_fraction: float = 0.3
    """The run stops when more than this share of a window's or an evaluation's rollouts failed for
    reasons that are not the policy's."""

    def __post_init__(self) -> None:
        _at_least(
            1,
            group_size=self.group_size,
            min_group_size=self.min_group_size,
            max_turns=self.max_turns,
            max_context=self.max_context,
            workers=self.workers,
            max_inflight=self.max_inflight,
        )
        _above_zero(
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
    """Optimizer steps of the whole run."""
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
        _at_least(0, updates=self.updates)
        _at_least(
            1,
            batch_size=self.batch_size,
            updates_per_sync=self.updates_per_sync,
            max_tokens_per_batch=self.max_tokens_per_batch,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class KlConfig(Config):
    """A penalty on leaving another policy, added to the loss of every trained token."""

    coef: float = 0.0
    """Factor of the penalty; at 0 nothing is computed for it."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """Of D = current - base log-probability: k1 is D, k2 is D^2 / 2, k3 is exp(-D) - 1 + D."""
    base: Literal["reference", "old", "rollout"] = "reference"
    """Whose log-probabilities: a frozen copy of the starting weights (one more forward pass), the
    trainer's before the window's updates, or the ones recorded at sampling."""
    reset_every: int = 0
    """Updates after which the reference becomes the present policy; 0 never."""

    def __post_init__(self) -> None:
        _at_least(0, coef=self.coef, reset_every=self.reset_every)
        if self.reset_every and (not self.coef or self.base != "reference"):
            raise ValueError(
                f"reset_every {self.reset_every} has no effect without a coef above 0 and base "
                "reference"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class EntropyConfig(Config):
    """A bonus for the entropy of the next-token distribution at trained tokens."""

    coef: float = 0.0
    """Factor of the bonus; with ``target`` where the control starts."""
    target: float | None = None
    """Nats a token. After each update the coefficient grows by ``step`` when the mean entropy over
    the whole global batch was below it, and shrinks by ``step`` otherwise; at or above it no bonus
    is paid (arXiv 2505.22312)."""
    step: float = 0.001
    """How far one update moves the coefficient."""
    max_coef: float = 0.1
    """The coefficient stays between 0 and this."""

    def __post_init__(self) -> None:
        _at_least(0, step=self.step, max_coef=self.max_coef)
        if self.target is not None:
            _at_least(0, target=self.target)
            if not 0 <= self.coef <= self.max_coef:
                raise ValueError(f"coef {self.coef} is not in [0, max_coef {self.max_coef}]")


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueConfig(Config):
    """A value model beside the policy: own weights, own optimizer, own folder in checkpoints."""

    loss: Use
    """Loss that trains it."""
    trainer: Use | None = None
    """Backend and its options; null takes the policy's ``trainer`` as it is."""
    model: ModelConfig | None = None
    """Body it starts from; null takes the run's model."""
    warmup_updates: int = 0
    """First updates of the run in which only the value model learns."""

    def __post_init__(self) -> None:
        _at_least(0, warmup_updates=self.warmup_updates)


@dataclass(frozen=True, kw_only=True, slots=True)
class TeacherConfig(Config):
    """On-policy distillation: the advantage becomes (1 - alpha) A - alpha clip(student - teacher),
    with the log-probabilities of the sampled tokens."""

    model: ModelConfig
    """Weights of the teacher; its tokenizer must be the student's."""
    engine: Use | None = None
    """Engine that serves it; null runs it frozen in the trainer's backend."""
    alpha: float = 1.0
    """Share of the teacher's signal."""
    clip: float = 10.0
    """Largest absolute difference of log-probabilities."""

    def __post_init__(self) -> None:
        _above_zero(clip=self.clip)
        if not 0 < self.alpha <= 1:
            raise ValueError(f"alpha {self.alpha} is not in (0, 1]; leave teacher out for none")


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplerConfig(Config):
    """Which tasks are drawn. All but ``uniform`` learn how hard a task is from its own rollouts:
    success is the mean reward on a scale from the lowest to the highest reward of the run."""

    short_form: ClassVar[str] = "strategy"

    strategy: Literal["uniform", "no_easy", "low_success", "intermediate"] = "uniform"
    """``uniform``: every task once an epoch, shuffled. ``no_easy``: tasks with a success above
    ``easy_above`` are left out. ``low_success``: drawn in proportion to 1 - success.
    ``intermediate``: in proportion to success x (1 - success). A task not seen yet counts as the
    most wanted; none is forgotten for good (``floor``)."""
    easy_above: float = 0.9
    """For ``no_easy``."""
    floor: float = 0.05
    """Least weight of a task beside the most wanted one's 1, for ``low_success`` and
    ``intermediate``."""
    memory: float = 0.5
    """Share of the old success that stays when a task is played again."""

    def __post_init__(self) -> None:
        for name in ("easy_above", "floor", "memory"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} {getattr(self, name)} is not in [0, 1]")


@dataclass(frozen=True, kw_only=True, slots=True)
class OfflineConfig(Config):
    """What ``mode: train_offline`` learns from."""

    rollouts: str = ""
    """Folder of a run whose training rollouts are replayed, in their order, over and over. Empty
    learns from the conversations of ``dataset``: tasks with ``messages``, every assistant turn
    trained."""


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
        _at_least(0, every=self.every, tasks=self.tasks)
        _at_least(1, samples=self.samples)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig(Config):
    """When the run is saved. The end of the run and SIGTERM always save."""

    every: int = 50
    """Updates between checkpoints; 0 is only at the end."""
    keep: int = 2
    """Newest checkpoints kept."""

    def __post_init__(self) -> None:
        _at_least(0, every=self.every)
        _at_least(1, keep=self.keep)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacementConfig(Config):
    """Where the actors live."""

    short_form: ClassVar[str] = "kind"

    kind: Literal["inline", "ray"] = "inline"
    """``inline``: in this process. ``ray``: one process an actor."""
    address: str = ""
    """Ray cluster to join; empty starts a local one."""
    cpus_per_actor: float = 0.25
    """Share of a CPU Ray sets aside for each actor; it limits how many fit, not what they use."""
    gpus_engine: float = 0.0
    gpus_trainer: float = 0.0
    sync_timeout_s: float = 300.0
    """An engine that has not echoed new weights after this is an error naming the rank and both
    versions."""

    def __post_init__(self) -> None:
        _at_least(0, gpus_engine=self.gpus_engine, gpus_trainer=self.gpus_trainer)
        _at_least(0, cpus_per_actor=self.cpus_per_actor)
        _above_zero(sync_timeout_s=self.sync_timeout_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig(Config):
    """A whole run."""

    name: str = ""
    """Name of the run folder; empty makes one from the recipe and the time."""
    mode: Literal["train", "train_offline"] = "train"
    """``train``: play rollouts and learn from them. ``train_offline``: learn from what is already
    there (``offline``); env and engine are used by evaluations alone."""
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
    advantage: Use
    loss: Use
    corrections: tuple[Use, ...] = ()
    """Applied to the policy's loss in this order."""
    kl: KlConfig = KlConfig()
    entropy: EntropyConfig = EntropyConfig()
    value: ValueConfig | None = None
    teacher: TeacherConfig | None = None
    packer: Use = Use(use="core/linear")
    store: Use = Use(use="core/shm")
    engine: Use | None = None
    trainer: Use
    loggers: tuple[Use, ...] = (Use(use="core/console"), Use(use="core/jsonl"))
    sampler: SamplerConfig = SamplerConfig()
    offline: OfflineConfig = OfflineConfig()
    rollout: RolloutConfig = RolloutConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig | None = None
    checkpoint: CheckpointConfig = CheckpointConfig()
    placement: PlacementConfig = PlacementConfig()
    plugins: tuple[str, ...] = ()
    """Plugins to activate besides those the components name (observers)."""

    def __post_init__(self) -> None:
        check_reward_weights(self.rewards, self.reward_weights)
        rollout, train, sampling = self.rollout, self.train, self.rollout.sampling
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
        self._check_parts()
        # A value model reads one position more: the state after the last token.
        least = rollout.max_context - (0 if self.value else 1)
        if train.max_tokens_per_batch < least:
            raise ValueError(
                f"train.max_tokens_per_batch {train.max_tokens_per_batch} is too small for a "
                f"rollout of rollout.max_context {rollout.max_context} tokens"
            )
        if sampling.temperature == 0:
            raise ValueError("rollout.sampling.temperature 0 is greedy: nothing can be learnt")
        if sampling.top_p < 1 or sampling.top_k or sampling.min_p:
            raise ValueError(
                "rollout.sampling top_p, top_k and min_p cut the distribution that is sampled, "
                "while the trainer scores tokens under the whole one: leave them off when training"
            )

    def _check_parts(self) -> None:
        """What the mode needs, and what goes together."""
        plays = self.mode == "train" or self.eval is not None
        for name in ("env", "engine") if plays else ():
            needed(getattr(self, name), name)
        if self.mode == "train" or not self.offline.rollouts:
            needed(self.dataset, "dataset")
        if self.mode == "train" and self.offline.rollouts:
            raise ValueError("offline.rollouts has no effect unless mode is train_offline")
        if self.value and self.value.warmup_updates >= self.train.updates:
            raise ValueError(
                f"value.warmup_updates {self.value.warmup_updates} leaves none of train.updates "
                f"{self.train.updates} for the policy"
            )

    @property
    def groups_per_window(self) -> int:
        """Tasks dispatched for one window of rollouts."""
        return self.train.batch_size * self.train.updates_per_sync // self.rollout.group_size
