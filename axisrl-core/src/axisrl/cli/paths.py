"""Where the command line keeps its files. The only reader of the variables named here."""

from __future__ import annotations

import os
from pathlib import Path


def output_root() -> Path:
    """The folder of run folders: ``AXISRL_OUTPUT_DIR``, else ``~/axisrl-data/outputs``."""
    return Path(os.environ.get("AXISRL_OUTPUT_DIR") or "~/axisrl-data/outputs").expanduser()


def cache_root() -> Path:
    """The folder of fetched models: ``AXISRL_CACHE_DIR``, else ``~/.cache/axisrl``."""
    return Path(os.environ.get("AXISRL_CACHE_DIR") or "~/.cache/axisrl").expanduser()
