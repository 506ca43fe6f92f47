"""What the page shows, as JSON: one overview of the run; rollout files go as they are.

Every string in it is data from a run; the page puts it into text nodes, never into markup.
Numbers that JSON cannot hold (NaN, infinities) become null.
"""

from __future__ import annotations

import json
import math
from typing import Any

from axisrl.runfolder import RunFolder

_MANIFEST_KEYS = ("recipe", "created", "versions", "seed")


def overview(run: RunFolder) -> dict[str, Any]:
    """Facts, metrics of every step and which steps have rollouts."""
    manifest = run.manifest
    return {
        "name": run.name,
        "path": str(run.path),
        "state": run.state,
        "command": run.command,
        "resume": run.resume_command,
        "manifest": {key: manifest[key] for key in _MANIFEST_KEYS if key in manifest},
        "metrics": run.metrics,
        "steps": run.rollout_steps("step"),
        "evals": run.rollout_steps("eval"),
        "left_out": 0,
    }


def to_json(value: Any) -> str:
    """Strict JSON: ``NaN`` and infinities, which ``JSON.parse`` refuses, are null."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return value
