"""One thread that does slow calls in order, so that nobody waits for them.

A call that raises does not stop the next one; its error is raised at the next ``submit`` or
``stop``, in the thread of whoever calls that. It does not retry.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Background:
    """Runs what is submitted, first in, first out."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._error: Exception | None = None
        # A daemon: a backend that hangs must not keep a finished run's process alive.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Calls not yet begun."""
        return self._calls.qsize()

    def submit(self, call: Callable[[], None]) -> None:
        """Queue a call and return at once. Raises what an earlier call raised, after queueing."""
        self._calls.put(call)
        self._raise()

    def drain(self, timeout_s: float) -> bool:
        """Wait until everything submitted so far is done; False when that took too long."""
        done = threading.Event()
        self._calls.put(done.set)
        return done.wait(timeout_s)

    def stop(self, timeout_s: float) -> bool:
        """Finish what is queued and end the thread; False when that took too long."""
        self._calls.put(None)
        self._thread.join(timeout_s)
        self._raise()
        return not self._thread.is_alive()

    def _work(self) -> None:
        for call in iter(self._calls.get, None):
            try:
                call()
            except Exception as problem:  # noqa: BLE001  handed to the caller, of whatever kind
                self._error = problem

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
