"""What this plugin offers. Imports nothing but :mod:`axisrl.plugins`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from axisrl.plugins import ConfigProblem, TrainerComponent, hookimpl

if TYPE_CHECKING:
    from axisrl.config.schema import RunConfig, Use

_SIZES = ("tensor",)
"""Options that divide a model."""


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
    ranks = config.placement.trainer_ranks
    for path, trainer in _trainers(config):
        tensor = trainer.options.get("tensor", 1)
        if "trainer" in config.needs and ranks % tensor:
            yield ConfigProblem(
                path=f"{path}.tensor",
                message=f"{tensor} does not divide placement.trainer_ranks {ranks}: "
                f"{ranks} / {tensor} leaves {ranks % tensor}",
                fix=f"set placement.trainer_ranks to a multiple of {tensor}",
            )


@hookimpl
def axisrl_models_found(config: RunConfig, models: Mapping[str, Path]) -> Iterable[ConfigProblem]:
    """A model that the trainer does not know, or that its layout does not divide."""
    from axisrl.errors import AxisrlError
    from axisrl_megatron.families import read_fields, shape_of
    from axisrl_megatron.layout import Layout

    if "trainer" not in config.needs:
        return
    for path, trainer in _trainers(config):
        model = path.replace("trainer", "model")
        if model not in models:
            continue
        sizes = {name: trainer.options.get(name, 1) for name in _SIZES}
        try:
            shape = shape_of(read_fields(models[model]))
            Layout.over(config.placement.trainer_ranks, **sizes).check(shape)
        except AxisrlError as problem:
            yield ConfigProblem(path=path, message=problem.message, fix=problem.fix)


def _trainers(config: RunConfig) -> Iterable[tuple[str, Use]]:
    """Megatron trainers of models that learn, by their keys."""
    value = config.value.trainer if config.value else None
    for path, trainer in (("trainer", config.trainer), ("value.trainer", value)):
        if trainer is not None and trainer.use.partition("@")[0] == "megatron/trainer":
            yield path, trainer
