"""Claims a run folder for one process, so that no two drivers write into it.

The claim is a lock on the folder itself: nothing is added to it, and the kernel lets go however the
process ends. Where the file system has no locks there is no claim.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from axisrl.errors import UsageError


@contextlib.contextmanager
def claimed(run_dir: Path) -> Iterator[None]:
    """Hold the (existing) folder for the block. Raises ``UsageError`` when another process does."""
    folder = os.open(run_dir, os.O_RDONLY)
    try:
        _lock(folder, run_dir)
        yield
    finally:
        os.close(folder)


def _lock(folder: int, run_dir: Path) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"the run {run_dir} goes on in another process",
            fix="end that process first, or choose another --name",
        ) from None
    except OSError:
        return
