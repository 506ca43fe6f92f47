"""What this plugin offers. Imports nothing but :mod:`axisrl.plugins`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from axisrl.plugins import ConfigProblem, EngineComponent, HealthComponent, hookimpl

if TYPE_CHECKING:
    from axisrl.config.schema import RunConfig


@hookimpl
def axisrl_rollout_engines() -> Iterable[EngineComponent]:
    """The engine that serves by SGLang."""
    return [
        EngineComponent(
            name="engine",
            target="axisrl_sglang.engine:SglangEngine",
            config="axisrl_sglang.config:EngineConfig",
            summary="SGLang in a process of its own, on GPUs of one or several machines",
            extras=("sglang",),
            modules=("sglang",),
            offloads=True,
            spans=True,
            supports_routing_capture=True,
            transports=("shared_memory", "disk", "cuda_ipc", "nccl"),
        )
    ]


@hookimpl
def axisrl_health_checks() -> Iterable[HealthComponent]:
    """What SGLang needs, and what of it is there."""
    return [
        HealthComponent(
            name="stack",
            target="axisrl_sglang.doctor:stack",
            summary="SGLang, its kernels and the versions it pins",
        )
    ]


@hookimpl
def axisrl_config_resolved(config: RunConfig) -> Iterable[ConfigProblem]:
    """Arguments that the SGLang installed does not have."""
    from axisrl_sglang.check import argument_problems

    return argument_problems(config)
