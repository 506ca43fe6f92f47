"""SharedFolder: a folder of arrays for the processes of one machine, gone when the last of them is.

1. It is made under /dev/shm (the temporary folder where the system has none), for this user alone.
2. Everybody who uses it holds a shared lock on its lock file; the kernel drops the lock however a
   process ends, SIGKILL included.
3. Who opens a folder first removes those of the same kind that nobody holds: what a killed run
   left does not stay in memory.

What the files in it are is their writer's business.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from axisrl.errors import StoreError

_LOCK = "lock"


class SharedFolder:
    """``<base>/axisrl-<kind>-<uid>-<key>``; processes that name the same key share it."""

    def __init__(self, kind: str, key: str, base: Path | None = None) -> None:
        base = base or shared_memory()
        prefix = f"axisrl-{kind}-{os.getuid()}-"
        for stale in base.glob(f"{prefix}*"):
            _remove_if_abandoned(stale)
        self.path = base / f"{prefix}{key}"
        self._lock: int | None = _join(self.path)

    @property
    def closed(self) -> bool:
        """True once this process closed it."""
        return self._lock is None

    def close(self) -> None:
        """Remove the folder with all that is in it, for everybody; idempotent."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def shared_memory() -> Path:
    """/dev/shm, or the temporary folder where the system has none that can be written."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    return memory if usable else Path(tempfile.gettempdir())


def _join(folder: Path) -> int:
    """Make the folder and take part in its lock; the lock's file descriptor."""
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise StoreError(f"{folder} belongs to somebody else", fix="remove it, or use another")
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_SH)
        if _is_current(lock, folder):
            return lock
        # Another process removed the folder as abandoned between the two calls.
        os.close(lock)


def _remove_if_abandoned(folder: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_current(lock, folder):
            shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(lock)


def _is_current(lock: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.stat(folder / _LOCK))
    except FileNotFoundError:
        return False
