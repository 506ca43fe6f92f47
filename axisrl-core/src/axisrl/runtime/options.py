"""RunOptions: what the command line decides about a run that is not its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from axisrl.runtime.faults import FaultPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Handed to :func:`axisrl.runtime.driver.run` beside the loaded configuration."""

    run_dir: Path
    cache_dir: Path
    """Where fetched models are kept."""
    resume: bool = False
    """Go on from the newest complete checkpoint of ``run_dir``."""
    overwrite: bool = False
    """Remove ``run_dir`` first, once everything a new run needs is found."""
    allow_drift: bool = False
    """Go on although plugins or settings are not those the run was started with."""
    plain: bool = False
    """One line a step instead of a live display."""
    show_samples: int | None = None
    """Rollouts shown after a step; None leaves it to the console logger's own option."""
    command: tuple[str, ...] = ()
    """The command line, for the manifest."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Environment variables; ``*_env`` options name entries of it, so no secret is in a config."""
    faults: FaultPlan | None = None
    """Processes that shall die, to see the run survive it."""
