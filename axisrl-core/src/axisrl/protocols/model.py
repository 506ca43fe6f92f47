"""ModelSource: a named model that can be brought onto this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class ModelSource(Protocol):
    """Makes a model folder (config.json, tokenizer files, safetensors) available."""

    def fetch(self, cache: Path) -> Path:
        """The folder, under ``cache``, made at the first call and verified at every one.

        Raises ``EnvironmentProblem`` that names what is missing. Safe when two processes call it
        at once.
        """
        ...
