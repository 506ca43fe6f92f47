"""Whether two run folders hold the same run: metrics, rollouts, traces and models, bit for bit.

What clocks and machines decide is left out, and so is what a run counts of its own recovery.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import deserialize

from axisrl.runfolder import RunFolder, read_jsonl

_MEASURED = ("time", "system/", "recovery/")
"""Beginnings of names that say how, and not what, a run did."""


def differences(run_dir: Path, other: Path) -> list[str]:
    """One line for each thing that differs; empty when both are the same run."""
    pairs = [
        ("metrics of step", _metrics(run_dir), _metrics(other)),
        ("rollout", _rollouts(run_dir), _rollouts(other)),
        ("trace", _traces(run_dir), _traces(other)),
        ("newest checkpoint:", _models(run_dir), _models(other)),
    ]
    return [line for what, mine, theirs in pairs for line in _lines(what, mine, theirs)]


def _lines(what: str, mine: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    for key in sorted(mine.keys() | theirs.keys()):
        if key not in mine or key not in theirs:
            yield f"{what} {key} is in one of them only"
        elif mine[key] != theirs[key]:
            yield f"{what} {key}{_detail(mine[key], theirs[key])} differs"


def _detail(mine: Any, theirs: Any) -> str:
    if not isinstance(mine, dict):
        return ""
    names = sorted(n for n in mine.keys() | theirs.keys() if mine.get(n) != theirs.get(n))
    return f" ({', '.join(names)})"


def _metrics(run_dir: Path) -> dict[str, Any]:
    return {str(line["step"]): _told(line) for line in RunFolder(run_dir).metrics}


def _told(line: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in line.items()
        if not name.startswith(_MEASURED) and not name.endswith("_per_s")
    }


def _rollouts(run_dir: Path) -> dict[str, Any]:
    found = {}
    for path in sorted((run_dir / "rollouts").glob("*.jsonl")):
        for at, row in enumerate(read_jsonl(path)):
            del row["summary"]["seconds"]
            # NaN is not itself; its text is.
            found[f"{path.stem} {row['summary']['id']} ({at})"] = json.dumps(row, sort_keys=True)
    return found


def _traces(run_dir: Path) -> dict[str, Any]:
    return {
        f"{path.stem} {rollout}": _contents(tensor)
        for path in sorted((run_dir / "traces").glob("*.safetensors"))
        for rollout, (_, _, tensor) in _tensors(path.read_bytes()).items()
    }


def _models(run_dir: Path) -> dict[str, Any]:
    newest = RunFolder(run_dir).newest_checkpoint
    if newest is None:
        return {}
    return {
        f"{path.relative_to(newest)} {name}": tensor
        for path in sorted(newest.rglob("*.safetensors"))
        for name, tensor in _tensors(path.read_bytes()).items()
    }


def _contents(blob: bytes) -> tuple[Any, ...]:
    """A file's tensors and metadata; the order in which a file has them says nothing."""
    size = int.from_bytes(blob[:8], "little")
    return json.loads(blob[8 : 8 + size]).get("__metadata__"), _tensors(blob)


def _tensors(blob: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    """Name -> type, shape and bytes. Every type is read, those that numpy lacks included."""
    found: list[tuple[str, dict[str, Any]]] = deserialize(blob)  # type: ignore[no-untyped-call]
    return {name: (one["dtype"], one["shape"], bytes(one["data"])) for name, one in found}
