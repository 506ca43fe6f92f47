"""Makes a model folder once: under a lock, in a temporary folder, renamed into place.

The manifest ``axisrl-model.json`` records every file's size and SHA-256. A fetch checks the sizes
of all files and the hashes of the small ones; hashing hundreds of megabytes at every start is left
out on purpose.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from axisrl.errors import EnvironmentProblem

MANIFEST = "axisrl-model.json"
_SMALL = 1 << 20


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_once(folder: Path, make: Callable[[Path], None], logger: logging.Logger) -> Path:
    """``folder``, made by ``make(empty temporary folder)`` unless a sound one is there.

    Two processes at once: the second waits for the first and uses its result. A damaged folder is
    made again. Raises ``EnvironmentProblem`` when the cache cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            problem = damage(folder)
            if problem is None:
                return folder
            if folder.exists():
                logger.warning("model folder %s is made again: %s", folder, problem)
                shutil.rmtree(folder)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as temporary:
                made = Path(temporary) / folder.name
                made.mkdir()
                make(made)
                _write_manifest(made)
                made.rename(folder)
    except OSError as problem:
        raise EnvironmentProblem(
            f"the model cache {folder.parent} cannot be used: {problem}",
            fix="free space there, make it writable, or choose another output folder",
        ) from problem
    return folder


def damage(folder: Path) -> str | None:
    """What is wrong with a made folder in a few words; None when it is sound."""
    try:
        files = json.loads((folder / MANIFEST).read_text())["files"]
        for name, facts in files.items():
            path = folder / name
            if path.stat().st_size != facts["bytes"]:
                return f"{name} has {path.stat().st_size} bytes, not {facts['bytes']}"
            if facts["bytes"] <= _SMALL and sha256(path) != facts["sha256"]:
                return f"{name} has another SHA-256"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


def _write_manifest(folder: Path) -> None:
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.iterdir())
    }
    (folder / MANIFEST).write_text(json.dumps({"format": 1, "files": files}, indent=1))
