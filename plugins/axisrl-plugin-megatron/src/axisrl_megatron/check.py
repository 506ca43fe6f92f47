"""What can be wrong with a run before it starts: its number of ranks, its models.

Pure arithmetic over the configuration and the models' config.json. Imports neither torch nor
Megatron.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from axisrl.config.schema import RunConfig, Use
from axisrl.errors import AxisrlError, ConfigError
from axisrl.plugins import ConfigProblem
from axisrl_megatron.families import read_fields, shape_of
from axisrl_megatron.layout import SIZES, Layout


def ranks_problems(config: RunConfig) -> Iterator[ConfigProblem]:
    """A number of trainer ranks that a trainer's layout does not divide."""
    for path, trainer in _trainers(config):
        try:
            _layout(config, trainer)
        except ConfigError as problem:
            yield ConfigProblem(path=path, message=problem.message, fix=problem.fix)


def model_problems(config: RunConfig, models: Mapping[str, Path]) -> Iterator[ConfigProblem]:
    """Of the folders ``models``, those that the trainer does not know or its layout does not
    divide."""
    for path, trainer in _trainers(config):
        folder = models.get(path.replace("trainer", "model"))
        if folder is None:
            continue
        try:
            _layout(config, trainer).check(shape_of(read_fields(folder)))
        except AxisrlError as problem:
            yield ConfigProblem(path=path, message=problem.message, fix=problem.fix)


def _layout(config: RunConfig, trainer: Use) -> Layout:
    sizes = {name: trainer.options[name] for name in SIZES if name in trainer.options}
    sequence = bool(trainer.options.get("sequence", False))
    return Layout.over(config.placement.trainer_ranks, sequence=sequence, **sizes)


def _trainers(config: RunConfig) -> Iterable[tuple[str, Use]]:
    """Megatron trainers of models that learn, by their keys."""
    value = config.value.trainer if config.value else None
    for path, trainer in (("trainer", config.trainer), ("value.trainer", value)):
        if "trainer" not in config.needs or trainer is None:
            continue
        if trainer.id == "megatron/trainer":
            yield path, trainer
