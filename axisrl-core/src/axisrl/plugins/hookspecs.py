"""Every hook a plugin may implement: registration hooks that return descriptors, and lifecycle
observers.

Calls of the loop (``env.step``, ``verify``, a loss) are no hooks: they are methods of built
components. Registration hooks take no arguments and are collected one plugin at a time; lifecycle
hooks are synchronous, observe, and return nothing (except ``axisrl_config_resolved`` and
``axisrl_models_found``). Nothing is ``firstresult`` or historic; wrappers (``wrapper=True``) are
for lifecycle hooks only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from axisrl.plugins.observers import LifecycleSpecs, hookspec

if TYPE_CHECKING:
    from axisrl.plugins.components import (
        AdvantageComponent,
        BlackboxComponent,
        CommandComponent,
        CorrectionComponent,
        DatasetComponent,
        EngineComponent,
        EnvComponent,
        HandleStoreComponent,
        HealthComponent,
        LoggerComponent,
        LossComponent,
        ModelComponent,
        PackerComponent,
        RecipeComponent,
        RewardComponent,
        ServiceComponent,
        TrainerComponent,
        VerifierComponent,
    )

__all__ = ["LifecycleSpecs", "RegistrySpecs"]


class RegistrySpecs(Protocol):
    """What a plugin offers; each hook returns an iterable of descriptors."""

    @hookspec
    def axisrl_envs(self) -> Iterable[EnvComponent]:
        """Offer environments (:class:`axisrl.protocols.Env`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import EnvComponent, hookimpl

            @hookimpl
            def axisrl_envs():
                return [EnvComponent(name="sums", target="axisrl_sums.env:SumsEnv")]
        """

    @hookspec
    def axisrl_verifiers(self) -> Iterable[VerifierComponent]:
        """Offer verifiers (:class:`axisrl.protocols.Verifier`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import VerifierComponent, hookimpl

            @hookimpl
            def axisrl_verifiers():
                return [VerifierComponent(name="exact", target="axisrl_sums.verify:Exact")]
        """

    @hookspec
    def axisrl_rewards(self) -> Iterable[RewardComponent]:
        """Offer rewards (:class:`axisrl.protocols.Reward`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import RewardComponent, hookimpl

            @hookimpl
            def axisrl_rewards():
                return [RewardComponent(name="worth", target="axisrl_sums.reward:Worth")]
        """

    @hookspec
    def axisrl_advantages(self) -> Iterable[AdvantageComponent]:
        """Offer advantage estimators (:class:`axisrl.protocols.Advantage`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import AdvantageComponent, hookimpl

            @hookimpl
            def axisrl_advantages():
                return [AdvantageComponent(name="group", target="axisrl_x.advantage:Group")]
        """

    @hookspec
    def axisrl_losses(self) -> Iterable[LossComponent]:
        """Offer policy losses (:class:`axisrl.protocols.Loss`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import LossComponent, hookimpl

            @hookimpl
            def axisrl_losses():
                return [LossComponent(name="clip", target="axisrl_x.losses:Clip")]
        """

    @hookspec
    def axisrl_corrections(self) -> Iterable[CorrectionComponent]:
        """Offer per-token corrections (:class:`axisrl.protocols.Correction`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import CorrectionComponent, hookimpl

            @hookimpl
            def axisrl_corrections():
                return [CorrectionComponent(name="tis", target="axisrl_x.tis:Tis")]
        """

    @hookspec
    def axisrl_packers(self) -> Iterable[PackerComponent]:
        """Offer packers (:class:`axisrl.protocols.Packer`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import PackerComponent, hookimpl

            @hookimpl
            def axisrl_packers():
                return [PackerComponent(name="tree", target="axisrl_x.tree:TreePacker")]
        """

    @hookspec
    def axisrl_handle_stores(self) -> Iterable[HandleStoreComponent]:
        """Offer handle stores (:class:`axisrl.protocols.HandleStore`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import HandleStoreComponent, hookimpl

            @hookimpl
            def axisrl_handle_stores():
                return [HandleStoreComponent(name="shm", target="axisrl_x.shm:Shm")]
        """

    @hookspec
    def axisrl_blackbox_adaptors(self) -> Iterable[BlackboxComponent]:
        """Offer adaptors of foreign agents (:class:`axisrl.protocols.BlackboxAdaptor`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import BlackboxComponent, hookimpl

            @hookimpl
            def axisrl_blackbox_adaptors():
                return [BlackboxComponent(name="cli", target="axisrl_x.cli:Cli")]
        """

    @hookspec
    def axisrl_rollout_engines(self) -> Iterable[EngineComponent]:
        """Offer rollout engines (:class:`axisrl.protocols.RolloutEngine`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import EngineComponent, hookimpl

            @hookimpl
            def axisrl_rollout_engines():
                return [EngineComponent(name="engine", target="axisrl_x.engine:Engine")]
        """

    @hookspec
    def axisrl_trainer_backends(self) -> Iterable[TrainerComponent]:
        """Offer trainer backends (:class:`axisrl.protocols.TrainerBackend`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import TrainerComponent, hookimpl

            @hookimpl
            def axisrl_trainer_backends():
                return [TrainerComponent(name="torch", target="axisrl_x.train:Torch")]
        """

    @hookspec
    def axisrl_datasets(self) -> Iterable[DatasetComponent]:
        """Offer datasets (:class:`axisrl.protocols.TaskDataset`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import DatasetComponent, hookimpl

            @hookimpl
            def axisrl_datasets():
                return [DatasetComponent(name="sums", target="axisrl_sums.data:Sums")]
        """

    @hookspec
    def axisrl_metric_loggers(self) -> Iterable[LoggerComponent]:
        """Offer metric loggers (:class:`axisrl.protocols.MetricLogger`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import LoggerComponent, hookimpl

            @hookimpl
            def axisrl_metric_loggers():
                return [LoggerComponent(name="csv", target="axisrl_x.csv_log:Csv")]
        """

    @hookspec
    def axisrl_models(self) -> Iterable[ModelComponent]:
        """Offer named models (:class:`axisrl.protocols.ModelSource`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import ModelComponent, hookimpl

            @hookimpl
            def axisrl_models():
                return [ModelComponent(name="tiny", target="axisrl_x.models:Tiny")]
        """

    @hookspec
    def axisrl_services(self) -> Iterable[ServiceComponent]:
        """Offer services that a run's components share (:class:`axisrl.protocols.Service`).

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import ServiceComponent, hookimpl

            @hookimpl
            def axisrl_services():
                return [ServiceComponent(name="index", target="axisrl_x.index:Index")]
        """

    @hookspec
    def axisrl_recipes(self) -> Iterable[RecipeComponent]:
        """Offer runnable configurations: YAML files inside the package.

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import RecipeComponent, hookimpl

            @hookimpl
            def axisrl_recipes():
                return [RecipeComponent(name="sums", target="axisrl_sums:configs/default.yaml")]
        """

    @hookspec
    def axisrl_commands(self) -> Iterable[CommandComponent]:
        """Offer click commands, run as ``axisrl x <plugin> <name>``.

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import CommandComponent, hookimpl

            @hookimpl
            def axisrl_commands():
                return [CommandComponent(name="index", target="axisrl_x.cli:index", help="Index")]
        """

    @hookspec
    def axisrl_health_checks(self) -> Iterable[HealthComponent]:
        """Offer callables without arguments that return findings for ``axisrl doctor``.

        Arguments: none. Since: 0.1. Example::

            from axisrl.plugins import HealthComponent, hookimpl

            @hookimpl
            def axisrl_health_checks():
                return [HealthComponent(name="gpu", target="axisrl_x.doctor:gpu")]
        """
