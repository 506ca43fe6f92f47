"""Finding: what a health check says about one thing a machine has, or lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of ``axisrl doctor``."""

    name: str
    """What was looked for: ``torch``, ``NVIDIA driver``."""
    state: Literal["ok", "missing", "broken"]
    """``missing``: something works less well, or not at all; ``broken``: it is there and wrong."""
    found: str = ""
    """Version or device; of a broken thing, what is wrong."""
    cost: str = ""
    """What is lost without it."""
    fix: str = ""
    """What to do about it."""
