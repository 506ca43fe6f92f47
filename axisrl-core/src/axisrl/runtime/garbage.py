"""Garbage collection where model calls wait for it.

A full collection walks every object of the process: 0.2 s with torch and transformers imported,
in which no rollout goes on. What is there when the work begins lives as long as the process, and
need not be walked again.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


def settle() -> None:
    """Leave what is there now out of every later collection."""
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def settled() -> Iterator[None]:
    """So within the block; afterwards everything is collected again."""
    settle()
    try:
        yield
    finally:
        gc.unfreeze()
