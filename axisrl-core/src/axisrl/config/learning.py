"""The parts of a run's configuration that say how it learns: penalties, a value model, a teacher,
which tasks, which saved data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from axisrl.config.base import Config
from axisrl.config.use import ModelConfig, Use, above_zero, at_least


@dataclass(frozen=True, kw_only=True, slots=True)
class KlConfig(Config):
    """A penalty on leaving another policy, added to the loss of every trained token."""

    coef: float = 0.0
    """Factor of the penalty; at 0 nothing is computed for it."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """Of D = current - base log-probability: k1 is D, k2 is D^2 / 2, k3 is exp(-D) - 1 + D.
    On policy k1's gradient is 0 on average: penalise with k2, whose gradient is the KL's, or k3."""
    base: Literal["reference", "old", "rollout"] = "reference"
    """Whose log-probabilities: a frozen copy of the starting weights (one more forward pass), the
    trainer's before the window's updates, or the ones recorded at sampling."""
    reset_every: int = 0
    """Updates after which the reference becomes the present policy; 0 never."""

    def __post_init__(self) -> None:
        at_least(0, coef=self.coef, reset_every=self.reset_every)


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
        at_least(0, step=self.step, max_coef=self.max_coef)
        if self.target is not None:
            at_least(0, target=self.target)
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
        at_least(0, warmup_updates=self.warmup_updates)


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
        above_zero(clip=self.clip)
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
