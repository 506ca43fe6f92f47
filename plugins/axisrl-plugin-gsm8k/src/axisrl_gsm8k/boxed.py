r"""Judges the last ``\boxed{...}`` of a rollout, symbolically where it is more than a number.

It does not look at ``####``. Plain numbers are compared here; everything else goes to math-verify
in a worker process, which a comparison that does not end is killed with.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from multiprocessing import get_context
from typing import Any

from pebble import ProcessExpired, ProcessPool

from axisrl.protocols import Rollout
from axisrl.types import BuildContext, Task, Verdict
from axisrl_gsm8k.answers import parse_number
from axisrl_gsm8k.config import BoxedVerifierConfig
from axisrl_gsm8k.verifier import compared, gold_number

_MAX_CHARACTERS = 1000
_BOXED = "\\boxed{"


class BoxedVerifier:
    """Score 1 when the boxed expression equals the task's number, else 0."""

    def __init__(self, config: BoxedVerifierConfig, context: BuildContext) -> None:
        self._timeout_s = config.timeout_s
        # spawn: a forked copy of a process that runs torch or ray threads can hang.
        self._pool = ProcessPool(
            max_workers=1, context=get_context("spawn"), initializer=_start_worker
        )
        weakref.finalize(self, _stop, self._pool)

    async def verify(self, task: Task, rollout: Rollout) -> Verdict:
        """A comparison that times out or kills its worker is a verdict with ``error``."""
        gold = gold_number(task)
        stated = last_boxed(rollout.answer)
        if stated is None:
            return Verdict(score=0.0, detail="no_answer")
        found = parse_number(stated)
        if found is not None:
            return compared(found, gold)
        if len(stated) > _MAX_CHARACTERS:
            return Verdict(score=0.0, detail="not_a_number")
        future = self._pool.schedule(
            symbolically_equal, args=(stated, str(gold)), timeout=self._timeout_s
        )
        try:
            equal = await asyncio.wrap_future(future)
        except TimeoutError:
            return Verdict(score=None, error=f"no verdict within {self._timeout_s} s: {stated!r}")
        except ProcessExpired as problem:
            return Verdict(score=None, error=f"the comparison of {stated!r} died: {problem}")
        if equal:
            return Verdict(score=1.0, passed=True, detail="correct")
        return Verdict(score=0.0, detail=f"wrong: {stated}, not {gold}")


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` whose braces balance; None when there is none."""
    start = text.rfind(_BOXED)
    if start < 0:
        return None
    start += len(_BOXED)
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[start:at].strip() or None
    return None


def symbolically_equal(stated: str, gold: str) -> bool:
    """Whether math-verify holds two expressions for equal; runs in the worker process."""
    from math_verify import parse, verify

    # Its own time-outs use signals and would only repeat the pool's.
    untimed: dict[str, Any] = {"parsing_timeout": None}
    found = parse(f"\\boxed{{{stated}}}", **untimed)
    return bool(verify(parse(f"\\boxed{{{gold}}}", **untimed), found, timeout_seconds=None))


def _start_worker() -> None:
    """Loads sympy and the LaTeX grammar before the first comparison's clock starts."""
    # math-verify warns at every parse that its own time-out is off; here the pool's is on.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    symbolically_equal("\\frac{1}{2}", "1")


def _stop(pool: ProcessPool) -> None:
    pool.stop()  # type: ignore[no-untyped-call]
    pool.join()
