"""What this plugin offers. Imports nothing but :mod:`axisrl.plugins`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from axisrl.plugins import ConfigProblem, TrainerComponent, hookimpl

if TYPE_CHECKING:
    from axisrl.config.schema import RunConfig


@hookimpl
def axisrl_trainer_backends() -> Iterable[TrainerComponent]:
    """The trainer on Megatron-core."""
    return [
        TrainerComponent(
            name="trainer",
            target="axisrl_megatron.trainer:MegatronTrainer",
            config="axisrl_megatron.config:MegatronConfig",
            summary="Megatron-core: packed training of Llama, Qwen2 and Qwen3 models",
            extras=("megatron",),
            modules=("megatron.core",),
            transports=("shared_memory", "disk", "cuda_ipc", "nccl"),
            data_parallel=True,
            offloads=True,
        )
    ]


@hookimpl
def axisrl_config_resolved(config: RunConfig) -> Iterable[ConfigProblem]:
    """A number of trainer ranks that ``tensor`` does not divide."""
    value = config.value.trainer if config.value else None
    ranks = config.placement.trainer_ranks
    for path, trainer in (("trainer", config.trainer), ("value.trainer", value)):
        if trainer is None or trainer.use.partition("@")[0] != "megatron/trainer":
            continue
        tensor = trainer.options.get("tensor", 1)
        if "trainer" in config.needs and ranks % tensor:
            yield ConfigProblem(
                path=f"{path}.tensor",
                message=f"{tensor} does not divide placement.trainer_ranks {ranks}: "
                f"{ranks} / {tensor} leaves {ranks % tensor}",
                fix=f"set placement.trainer_ranks to a multiple of {tensor}",
            )
