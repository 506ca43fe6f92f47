"""What every part of a run's configuration stands on: a component to use, a model, checks of
numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

from axisrl.config.base import Config

T = TypeVar("T")


def at_least(least: int, **values: float) -> None:
    """Raises ``ValueError`` that names the first value below ``least``."""
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name} {value} is below {least}")


def above_zero(**values: float) -> None:
    """Raises ``ValueError`` that names the first value not above 0."""
    for name, value in values.items():
        if value <= 0:
            raise ValueError(f"{name} {value} is not above 0")


def needed(part: T | None, path: str, where: str = "") -> T:
    """A part that this run cannot do without (and ``where`` that is so). Raises ``ValueError`` when
    it is not set."""
    if part is None:
        raise ValueError(f"{path} is required{where}: set {path}")
    return part


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """``use: plugin/component`` and that component's own options beside it."""

    use: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Which component, without the version that ``use`` may pin."""
        return self.use.partition("@")[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceUse(Use):
    """A named service: ``use`` and its own options, and beside them how many processes hold it."""

    replicas: int = 1
    """Processes that answer; calls go to the one with the fewest under way."""
    gpus: float = 0.0
    """GPUs of each, or a share of one (``placement: ray``)."""

    def __post_init__(self) -> None:
        at_least(1, replicas=self.replicas)
        at_least(0, gpus=self.gpus)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig(Config):
    """Which model is trained."""

    short_form: ClassVar[str] = "name"

    name: str
    """A folder, a named model (``tiny``, ``smollm2-135m``; see ``axisrl models``) or a Hugging
    Face id. Of a run's folder the newest complete checkpoint is taken, anew at every start."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type the engine and the trainer compute in."""
    device: str = "auto"
    """``auto``: cuda when there is one, else cpu."""
