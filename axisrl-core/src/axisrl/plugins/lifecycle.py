"""Call the lifecycle hooks of the active plugins, typed, and keep one plugin's fault from the rest.

1. A hook that raises is warned about once, with plugin, hook and exception; further times are only
   counted, and ``hook_failures`` sums up at the end.
2. ``AbortRun`` passes through; with ``strict`` everything does.

pluggy ends a call at the first exception, so each function is registered inside a guard. The guard
never changes what a function sees; a wrapper's own return value is ignored.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from axisrl.errors import AbortRun
from axisrl.plugins.hookspecs import LifecycleSpecs, RegistrySpecs
from axisrl.plugins.lint import LIFECYCLE_HOOKS, HookFunction
from axisrl.plugins.problem import ConfigProblem

if TYPE_CHECKING:
    from axisrl.config.schema import RunConfig
    from axisrl.plugins.events import (
        BatchPacked,
        CheckpointSaved,
        RolloutFinished,
        RunFinished,
        RunInfo,
        StepFinished,
        WeightsUpdated,
        WorkerInfo,
    )

_CHECKS = frozenset({"axisrl_config_resolved", "axisrl_models_found"})
"""Lifecycle hooks that answer."""
_log = logging.getLogger("axisrl.plugins")


@dataclass(frozen=True, slots=True)
class HookFailure:
    """How often one plugin's hook raised, and what it raised first."""

    plugin: str
    hook: str
    error: str
    count: int


class HookSet:
    """What pluggy registers for a plugin: its hook functions, lifecycle ones guarded."""

    def __init__(self, functions: Iterable[tuple[str, Callable[..., Any]]]) -> None:
        for attribute, function in functions:
            setattr(self, attribute, function)


class Lifecycle:
    """One method a lifecycle hook; the base of the plugin manager."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._failures: dict[tuple[str, str], HookFailure] = {}
        self._pluggy = pluggy.PluginManager("axisrl")
        self._pluggy.add_hookspecs(RegistrySpecs)
        self._pluggy.add_hookspecs(LifecycleSpecs)

    def config_resolved(self, config: RunConfig) -> list[ConfigProblem]:
        """Ask every plugin what it finds wrong with the config."""
        answers = self._pluggy.hook.axisrl_config_resolved(config=config)
        return [problem for answer in answers for problem in answer]

    def models_found(self, config: RunConfig, models: Mapping[str, Path]) -> list[ConfigProblem]:
        """Ask every plugin what it finds wrong with the models."""
        answers = self._pluggy.hook.axisrl_models_found(config=config, models=models)
        return [problem for answer in answers for problem in answer]

    def run_started(self, run: RunInfo) -> None:
        """Tell plugins that every worker is up."""
        self._pluggy.hook.axisrl_run_started(run=run)

    def worker_started(self, worker: WorkerInfo) -> None:
        """Tell plugins, in a worker, that it is up."""
        self._pluggy.hook.axisrl_worker_started(worker=worker)

    def rollout_finished(self, event: RolloutFinished) -> None:
        """Tell plugins that a rollout came home."""
        self._pluggy.hook.axisrl_rollout_finished(event=event)

    def batch_packed(self, event: BatchPacked) -> None:
        """Tell plugins that a step's rows are packed."""
        self._pluggy.hook.axisrl_batch_packed(event=event)

    def step_finished(self, event: StepFinished) -> None:
        """Tell plugins what an optimizer step measured."""
        self._pluggy.hook.axisrl_step_finished(event=event)

    def weights_updated(self, event: WeightsUpdated) -> None:
        """Tell plugins that the engines serve a new version."""
        self._pluggy.hook.axisrl_weights_updated(event=event)

    def checkpoint_saved(self, event: CheckpointSaved) -> None:
        """Tell plugins that a checkpoint is complete."""
        self._pluggy.hook.axisrl_checkpoint_saved(event=event)

    def run_finished(self, event: RunFinished) -> None:
        """Tell plugins how the run ended."""
        self._pluggy.hook.axisrl_run_finished(event=event)

    def hook_failures(self) -> tuple[HookFailure, ...]:
        """What raised during the run, in order of first occurrence."""
        return tuple(self._failures.values())

    def _hook_set(self, plugin: str, hooks: Iterable[HookFunction]) -> HookSet:
        return HookSet((hook.attribute, self._guarded(plugin, hook)) for hook in hooks)

    def _guarded(self, plugin: str, hook: HookFunction) -> Callable[..., Any]:
        if hook.hook not in LIFECYCLE_HOOKS:
            return hook.function
        if hook.options["wrapper"]:
            return self._guarded_wrapper(plugin, hook)
        checks = hook.hook in _CHECKS

        @functools.wraps(hook.function)
        def call(*args: Any) -> Any:
            try:
                result = hook.function(*args)
                if checks:
                    return _problems(result)
                # A generator function would not run at all unless somebody iterates it.
                return list(result) if inspect.isgenerator(result) else result
            except (Exception, SystemExit) as error:  # noqa: BLE001  (any plugin code)
                self._failed(plugin, hook.hook, error)
                return None

        return call

    def _guarded_wrapper(self, plugin: str, hook: HookFunction) -> Callable[..., Any]:
        @functools.wraps(hook.function)
        def call(*args: Any) -> Generator[None, Any, Any]:
            wrapper = hook.function(*args)
            try:
                next(wrapper)
            except (Exception, SystemExit) as error:  # noqa: BLE001  (any plugin code)
                self._failed(plugin, hook.hook, error)
                return (yield)
            try:
                result = yield
            except BaseException as error:  # only AbortRun, strict or an interrupt reach here
                with contextlib.suppress(BaseException):  # the first error is the one that counts
                    wrapper.throw(error)
                raise
            try:
                wrapper.send(result)
                raise RuntimeError("a wrapper yields once")
            except StopIteration:
                return result
            except (Exception, SystemExit) as error:  # noqa: BLE001  (any plugin code)
                self._failed(plugin, hook.hook, error)
            return result

        return call

    def _failed(self, plugin: str, hook: str, error: BaseException) -> None:
        if self._strict or isinstance(error, AbortRun):
            raise error
        before = self._failures.get((plugin, hook))
        if before is None:
            text = f"{type(error).__name__}: {error}"
            _log.warning("plugin %s: %s raised %s (further times are counted)", plugin, hook, text)
            before = HookFailure(plugin, hook, text, 0)
        count = before.count + 1
        self._failures[plugin, hook] = HookFailure(plugin, hook, before.error, count)


def _problems(result: Any) -> list[ConfigProblem] | None:
    if result is None:
        return None
    problems = list(result)
    for problem in problems:
        if not isinstance(problem, ConfigProblem):
            raise TypeError(f"returned {problem!r}, not ConfigProblem")
    return problems
