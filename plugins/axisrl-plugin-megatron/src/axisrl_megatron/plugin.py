"""What this plugin offers. Imports nothing but :mod:`axisrl.plugins`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from axisrl.plugins import ConfigProblem, HealthComponent, TrainerComponent, hookimpl

if TYPE_CHECKING:
    from pathlib import Path

    from axisrl.config.schema import RunConfig


@hookimpl
def axisrl_trainer_backends() -> Iterable[TrainerComponent]:
    """The trainer on Megatron-core."""
    return [
        TrainerComponent(
            name="trainer",
            target="axisrl_megatron.trainer:MegatronTrainer",
            config="axisrl_megatron.config:MegatronConfig",
            summary="Megatron-core: packed training of Llama, Qwen2, Qwen3 and Qwen3-MoE models",
            extras=("megatron",),
            modules=("megatron.core",),
            transports=("shared_memory", "disk", "cuda_ipc", "nccl"),
            data_parallel=True,
            offloads=True,
            replays_routing=True,
        )
    ]


@hookimpl
def axisrl_health_checks() -> Iterable[HealthComponent]:
    """What Megatron needs, and what of it is there."""
    return [
        HealthComponent(
            name="stack",
            target="axisrl_megatron.doctor:stack",
            summary="Megatron-core, and the kernels of torch it is used with",
        )
    ]


@hookimpl
def axisrl_config_resolved(config: RunConfig) -> Iterable[ConfigProblem]:
    """A number of trainer ranks that the layout does not divide."""
    from axisrl_megatron.check import ranks_problems

    return ranks_problems(config)


@hookimpl
def axisrl_models_found(config: RunConfig, models: Mapping[str, Path]) -> Iterable[ConfigProblem]:
    """A model that the trainer does not know, or that its layout does not divide."""
    from axisrl_megatron.check import model_problems

    return model_problems(config, models)
