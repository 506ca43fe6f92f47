"""Options of a run that do nothing as it stands: an error for whoever set them, and no silence.

An option that was set in the layer of the switch that makes it idle, or in a later one, is a
problem. One from a layer below (a recipe's, under ``kl.coef=0``) goes back to its default, so that
the resolved configuration says only what the run does.

It knows the keys of a run. What is idle within a component's own options is refused by that
component's config.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from axisrl.config.modes import MODES
from axisrl.config.overrides import Layers, origin_of
from axisrl.config.problems import Problem
from axisrl.config.schema import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """``options`` do nothing where ``off`` says so, because of ``switch``."""

    switch: str
    off: Callable[[RunConfig], bool]
    options: tuple[str, ...]
    fix: str


_PLAYING = (
    "placement.engines",
    "placement.engine_nodes",
    "placement.gpus_engine",
    "placement.verifiers",
    "placement.rewards",
    "rollout.routing",
    "rollout.workers",
)
_RULES = (
    _Rule(
        switch="placement.kind",
        off=lambda run: run.placement.kind == "inline",
        options=(
            "rollout.workers",
            "placement.address",
            "placement.cpus_per_actor",
            "placement.strategy",
            "placement.engine_nodes",
            "placement.gpus_engine",
            "placement.gpus_trainer",
            "placement.trainer_ranks",
            "placement.lease_s",
            "placement.restart_timeout_s",
        ),
        fix="add placement.kind=ray, or remove it",
    ),
    _Rule(
        switch="placement.trainer_ranks",
        off=lambda run: run.placement.trainer_ranks == 1,
        options=("placement.rank_timeout_s",),
        fix="set placement.trainer_ranks above 1, or remove it",
    ),
    _Rule(
        switch="verifiers",
        off=lambda run: not run.verifiers,
        options=("placement.verifiers",),
        fix="add a verifier, or remove it",
    ),
    _Rule(
        switch="mode",
        off=lambda run: not {"engine", "trainer"} <= set(run.needs),
        options=("placement.colocate",),
        fix="remove it: this run has no engine and trainer that could share",
    ),
    _Rule(
        switch="schedule.kind",
        off=lambda run: run.schedule.kind == "sync",
        options=(
            "schedule.max_staleness",
            "schedule.over_age",
            "schedule.partial",
            "schedule.max_groups",
            "schedule.max_store_mib",
        ),
        fix="add schedule.kind=async, or remove it",
    ),
    _Rule(
        switch="kl.coef",
        off=lambda run: not run.kl.coef,
        options=("kl.estimator", "kl.base", "kl.reset_every"),
        fix="set kl.coef above 0, or remove it",
    ),
    _Rule(
        switch="kl.base",
        off=lambda run: run.kl.base != "reference",
        options=("kl.reset_every",),
        fix="set kl.base=reference, or remove it",
    ),
    _Rule(
        switch="entropy.target",
        off=lambda run: run.entropy.target is None,
        options=("entropy.step", "entropy.max_coef"),
        fix="set entropy.target, or remove it",
    ),
    _Rule(
        switch="sampler.strategy",
        off=lambda run: run.sampler.strategy == "uniform",
        options=("sampler.easy_above", "sampler.memory"),
        fix="choose another sampler.strategy, or remove it",
    ),
    _Rule(
        switch="sampler.strategy",
        off=lambda run: run.sampler.strategy in ("uniform", "no_easy"),
        options=("sampler.floor",),
        fix="set sampler.strategy to low_success or intermediate, or remove it",
    ),
)


def _mode_rule(run: RunConfig) -> _Rule:
    """What this run's mode does not use."""
    return _Rule(
        switch="mode",
        off=lambda _: True,
        options=MODES[run.mode].idle,
        fix="remove it, or choose another mode",
    )


def _playing_rule(run: RunConfig) -> _Rule:
    """What plays rollouts, in a run that plays none."""
    return _Rule(
        switch="offline.rollouts" if run.mode == "mismatch" else "mode",
        off=lambda run: "engine" not in run.needs,
        options=_PLAYING,
        fix="remove it; this run plays no rollout",
    )


def settle_inert(config: RunConfig, layers: Layers, defaults: Layers) -> list[Problem]:
    """Problems of the options that were set to do nothing; idle ones from below their switch are
    laid back to ``defaults`` in ``layers``."""
    problems: dict[str, Problem] = {}
    for rule in (_mode_rule(config), _playing_rule(config), *_RULES):
        if not rule.off(config):
            continue
        chosen = layers.rank(origin_of(layers.origins, rule.switch))
        for path in rule.options:
            value, default = _at(layers.tree, path), _at(defaults.tree, path)
            if value == default:
                continue
            if _newest(layers, path) < chosen:
                section, _, key = path.partition(".")
                layers.add({section: {key: default} if key else default}, defaults.origins[path])
                continue
            choice = _at(layers.tree, rule.switch)
            what = path if isinstance(value, dict | list) else f"{path} {value!r}"
            message = f"{what} has no effect with {rule.switch} {_said(choice)}"
            problems.setdefault(path, Problem(path, message, rule.fix))
    return list(problems.values())


def _newest(layers: Layers, path: str) -> int:
    """Rank of the last layer that set a key or something under it."""
    inside = [origin for key, origin in layers.origins.items() if key.startswith(f"{path}.")]
    return max(map(layers.rank, inside or [origin_of(layers.origins, path)]))


def _at(tree: dict[str, Any], path: str) -> Any:
    section, _, key = path.partition(".")
    return tree[section][key] if key else tree[section]


def _said(value: Any) -> str:
    return "null" if value is None else str(value)
