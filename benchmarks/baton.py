"""A plugin for ``axisrl run`` that waits for the benchmark's word before every update.

Loaded with ``--plugin benchmarks/baton.py``. A line on standard input starts an update, a line that
begins with ``MARK`` on standard output says that it is over, and how many seconds of CPU time the
process has used, all threads together. The waiting lies between two updates,
outside every phase that axisrl times itself.
"""

from __future__ import annotations

import sys
import time

from axisrl.plugins import hookimpl

MARK = "@update"


@hookimpl
def axisrl_run_started(run: object) -> None:
    """Both models are loaded; the first update comes next."""
    pause()


@hookimpl
def axisrl_weights_updated(event: object) -> None:
    """The engine serves the new weights: the update is over."""
    pause()


def pause() -> None:
    """Say that this side is ready, and wait to be told to go on."""
    print(MARK, time.process_time(), flush=True)
    if not sys.stdin.readline():
        raise SystemExit("the benchmark went away")
