"""Config: the base of every component's config dataclass. Imports nothing, so plugin config
modules stay light."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Subclass with ``@dataclass(frozen=True, kw_only=True, slots=True)``; put a docstring under
    each field.

    The core validates with pydantic's ``TypeAdapter``; unknown keys are errors. Raise
    ``ValueError`` in ``__post_init__`` for combinations that cannot work: the message reaches the
    user with the key's path.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}


@dataclass(frozen=True, kw_only=True, slots=True)
class NoConfig(Config):
    """For components that take no options."""
