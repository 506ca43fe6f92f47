"""The lifecycle hooks: what a plugin may observe of a run. Registration hooks, and what all hooks
have in common, are in :mod:`axisrl.plugins.hookspecs`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pluggy import HookspecMarker

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
    from axisrl.plugins.problem import ConfigProblem

hookspec = HookspecMarker("axisrl")


class LifecycleSpecs(Protocol):
    """What a plugin may observe. A hook that raises is warned about once and counted; only
    :class:`axisrl.errors.AbortRun` ends the run.
    """

    @hookspec
    def axisrl_config_resolved(self, config: RunConfig) -> Iterable[ConfigProblem] | None:
        """Check the validated config, in the driver before anything starts; it cannot be changed.

        Arguments: ``config``: the run's config; a returned problem ends it. Since: 0.1. Example::

            from axisrl.plugins import ConfigProblem, hookimpl

            @hookimpl
            def axisrl_config_resolved(config):
                if config.train.updates > 10_000:
                    yield ConfigProblem(path="train.updates", message="over our budget")
        """

    @hookspec
    def axisrl_models_found(
        self, config: RunConfig, models: Mapping[str, Path]
    ) -> Iterable[ConfigProblem] | None:
        """Check the run's models, in the driver before anything starts.

        Arguments: ``config``: the run's config; ``models``: folders with a config.json of
        ``model``, ``value.model`` and ``teacher.model``, by those keys (in a dry run, of those that
        are on this machine); a returned problem ends it. Since: 0.1. Example::

            from axisrl.plugins import ConfigProblem, hookimpl

            @hookimpl
            def axisrl_models_found(config, models):
                for path, folder in models.items():
                    if not (folder / "LICENSE").exists():
                        yield ConfigProblem(path=path, message=f"{folder} has no licence")
        """

    @hookspec
    def axisrl_run_started(self, run: RunInfo) -> None:
        """See the run once every worker is up, in the driver.

        Arguments: ``run``: name, recipe, folder, seed and config of the run. Since: 0.1. Example::

            from axisrl.plugins import hookimpl

            @hookimpl
            def axisrl_run_started(run):
                print("started", run.name)
        """

    @hookspec
    def axisrl_worker_started(self, worker: WorkerInfo) -> None:
        """See a worker process at the end of its start, in that process.

        Arguments: ``worker``: role, rank, host and process id. Since: 0.1. Example::

            from axisrl.plugins import hookimpl

            @hookimpl
            def axisrl_worker_started(worker):
                print(worker.role, worker.rank, "is up on", worker.host)
        """

    @hookspec
    def axisrl_rollout_finished(self, event: RolloutFinished) -> None:
        """See each rollout that came home, in the driver.

        Arguments: ``event``: the step and a summary of ids and scores. Since: 0.1. Example::

            from axisrl.plugins import hookimpl

            @hookimpl
            def axisrl_rollout_finished(event):
                print(event.summary.id, event.summary.reward)
        """

    @hookspec
    def axisrl_batch_packed(self, event: BatchPacked) -> None:
        """See how a step's rows were packed, in the driver, just before the step's own event.

        Arguments: ``event``: counts of rows, tokens and batches. Since: 0.1. Example::

            from axisrl.plugins import hookimpl

            @hookimpl
            def axisrl_batch_packed(event):
                print("fill", event.trained_tokens / max(event.tokens, 1))
        """

    @hookspec
    def axisrl_step_finished(self, event: StepFinished) -> None:
        """See what an optimizer step measured, in the driver.

        Arguments: ``event``: the step and its statistics. Since: 0.1. Example::

            from axisrl.plugins import hookimpl

            @hookimpl
            def axisrl_step_finished(event):
                print(event.step, event.stats.grad_norm)
        """

    @hookspec
    def axisrl_weights_updated(self, event: WeightsUpdated) -> None:
        """See that every engine serves a new weight version, in the driver.

        Arguments: ``event``: the version and the seconds the update took. Since: 0.1. Example::

            from axisrl.plugins import hookimpl

            @hookimpl
            def axisrl_weights_updated(event):
                print("version", event.version)
        """

    @hookspec
    def axisrl_checkpoint_saved(self, event: CheckpointSaved) -> None:
        """See that a checkpoint is complete, in the driver.

        Arguments: ``event``: the step and the checkpoint's folder. Since: 0.1. Example::

            from axisrl.plugins import hookimpl

            @hookimpl
            def axisrl_checkpoint_saved(event):
                print("saved", event.path)
        """

    @hookspec
    def axisrl_run_finished(self, event: RunFinished) -> None:
        """See how the run ended, in the driver; always called.

        Arguments: ``event``: the outcome and the exception's text. Since: 0.1. Example::

            from axisrl.plugins import hookimpl

            @hookimpl
            def axisrl_run_finished(event):
                print(event.outcome, event.error)
        """
