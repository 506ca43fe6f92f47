"""``manifest.json``: what a run was, so that somebody else can tell why it differs from theirs.

Versions, plugins, git, hardware, command, and the run's state, which ``axisrl runs`` reads.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

State = Literal["running", "completed", "interrupted", "failed"]
_WATCHED = ("axisrl-core", "torch", "transformers", "numpy", "ray", "sglang", "megatron-core")


def new_manifest(
    name: str, recipe: str, command: Sequence[str], plugins: dict[str, Any]
) -> dict[str, Any]:
    """The manifest of a run that starts now."""
    return {
        "name": name,
        "recipe": recipe,
        "command": list(command),
        "created": time.time(),
        "updated": time.time(),
        "state": "running",
        "step": 0,
        "error": "",
        "pid": os.getpid(),
        "versions": {"python": platform.python_version(), **_versions()},
        "plugins": plugins,
        "git": _git_revision(),
        "hardware": {
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "host": platform.node(),
        },
    }


def continued(manifest: dict[str, Any], before: dict[str, Any], step: int) -> dict[str, Any]:
    """``manifest`` of a run that goes on after ``step``: how and when it was first started stays,
    and each start after that is listed under ``resumed``."""
    first = {key: before[key] for key in ("created", "command") if key in before}
    again = {"time": manifest["created"], "command": manifest["command"], "step": step}
    resumed = [*before.get("resumed", ()), again]
    return manifest | first | {"step": step, "resumed": resumed}


def write_manifest(run_dir: Path, manifest: dict[str, Any]) -> None:
    """Replace the file in one step."""
    manifest["updated"] = time.time()
    temporary = run_dir / ".manifest.json.tmp"
    temporary.write_text(json.dumps(manifest, indent=1))
    os.replace(temporary, run_dir / "manifest.json")


def read_manifest(run_dir: Path) -> dict[str, Any] | None:
    """The manifest of a run folder, or None where there is none to read."""
    try:
        found = json.loads((run_dir / "manifest.json").read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _versions() -> dict[str, str]:
    found = {}
    for name in _WATCHED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _git_revision() -> str:
    """Commit of the working folder, with a mark when it has changes; empty outside a checkout."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return described.stdout.strip() if described.returncode == 0 else ""
