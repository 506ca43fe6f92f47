"""What this plugin offers. Imports nothing but :mod:`axisrl.plugins`."""

from __future__ import annotations

from collections.abc import Iterable

from axisrl.plugins import TrainerComponent, hookimpl


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
