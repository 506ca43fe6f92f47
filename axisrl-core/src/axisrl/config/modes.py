"""Run modes: which parts of a configuration each of them works with.

A mode demands no part that it does not use. One that a recipe sets is laid back to its default, one
that is set beside the mode is an error (:mod:`axisrl.config.inert`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Mode = Literal["train", "train_offline", "rollout", "eval", "mismatch"]


class ModeParts(NamedTuple):
    """What a mode works with, by key of the configuration."""

    always: tuple[str, ...]
    """Must be set."""
    unless_replayed: tuple[str, ...] = ()
    """Must be set unless ``offline.rollouts`` takes their place."""
    idle: tuple[str, ...] = ()
    """Do nothing."""


_PLAY = ("dataset", "env", "engine")
_LEARN = ("advantage", "loss", "trainer")
_LEARNING_ALONE = (
    "advantage",
    "loss",
    "corrections",
    "kl.coef",
    "kl.estimator",
    "kl.base",
    "kl.reset_every",
    "entropy.coef",
    "entropy.target",
    "entropy.step",
    "entropy.max_coef",
    "value",
    "teacher",
    "schedule.kind",
    "schedule.max_staleness",
    "schedule.over_age",
    "schedule.partial",
    "schedule.max_groups",
    "schedule.max_store_mib",
    "placement.trainer_ranks",
    "placement.rank_timeout_s",
    "checkpoint.every",
)
_TRAINER = ("trainer", "placement.gpus_trainer")
_SAMPLING_TASKS = ("sampler.strategy", "sampler.easy_above", "sampler.floor", "sampler.memory")

MODES: Mapping[Mode, ModeParts] = {
    "train": ModeParts((*_PLAY, *_LEARN)),
    "train_offline": ModeParts(_LEARN, unless_replayed=("dataset",)),
    "rollout": ModeParts(_PLAY, idle=(*_LEARNING_ALONE, *_TRAINER, "eval", "rollout.routing")),
    "eval": ModeParts(
        ("eval", "env", "engine"),
        idle=(
            *_LEARNING_ALONE,
            *_SAMPLING_TASKS,
            *_TRAINER,
            "dataset",
            "rollout.routing",
            "train.zero_std_groups",
            "checkpoint.keep",
        ),
    ),
    "mismatch": ModeParts(
        ("trainer",),
        unless_replayed=_PLAY,
        idle=(*_LEARNING_ALONE, "eval", "train.zero_std_groups", "checkpoint.keep"),
    ),
}
