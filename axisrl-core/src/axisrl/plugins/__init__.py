"""What a plugin's ``plugin.py`` imports: the ``hookimpl`` marker, the component descriptors and
the answers of ``axisrl_config_resolved`` and of health checks.

Importing this package loads pluggy and nothing else: no pydantic, numpy, torch, ray or click.
The manager itself is :mod:`axisrl.plugins.manager`, the hooks are :mod:`axisrl.plugins.hookspecs`.
"""

from pluggy import HookimplMarker

from axisrl.plugins.components import (
    KINDS,
    AdvantageComponent,
    BlackboxComponent,
    CommandComponent,
    Component,
    ComponentRef,
    CorrectionComponent,
    DatasetComponent,
    EngineComponent,
    EnvComponent,
    HandleStoreComponent,
    HealthComponent,
    Kind,
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
from axisrl.plugins.finding import Finding
from axisrl.plugins.problem import ConfigProblem

API_VERSION = 1
"""Version of the hooks, descriptors and protocols together. A plugin module may declare the one it
was written for as ``AXISRL_API``."""

hookimpl = HookimplMarker("axisrl")
"""Marks a function of a plugin module as the implementation of the hook it is named after."""

__all__ = [
    "API_VERSION",
    "KINDS",
    "AdvantageComponent",
    "BlackboxComponent",
    "CommandComponent",
    "Component",
    "ComponentRef",
    "ConfigProblem",
    "CorrectionComponent",
    "DatasetComponent",
    "EngineComponent",
    "EnvComponent",
    "Finding",
    "HandleStoreComponent",
    "HealthComponent",
    "Kind",
    "LoggerComponent",
    "LossComponent",
    "ModelComponent",
    "PackerComponent",
    "RecipeComponent",
    "RewardComponent",
    "ServiceComponent",
    "TrainerComponent",
    "VerifierComponent",
    "hookimpl",
]
