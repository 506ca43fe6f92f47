"""What a :class:`axisrl.protocols.MetricLogger` promises. It does not look at a page: what was kept
is read back where the case knows how."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from axisrl.plugins.events import RunInfo
from axisrl.protocols.metrics import MetricLogger
from axisrl.testing.cases import LoggerCase
from axisrl.testing.harness import CheckFailed, CheckSkipped, Subject, Suite, require
from axisrl.types import Message, Outcome, RolloutRow, RolloutSummary, Verdict

LoggerSubject = Subject[LoggerCase]
_STEPS: dict[int, dict[str, float]] = {
    1: {"reward/mean": 0.25, "loss/total": -0.5, "rollout/groups": 4.0},
    2: {"reward/mean": 0.5, "loss/total": 1e-9, "eval/greedy": 0.75},
    3: {"reward/mean": 0.0, "loss/total": -1e6},
}
_LOCAL = ("127.", "localhost", "::1", "0.0.0.0")


def sample_rows(step: int) -> list[RolloutRow]:
    """A few rollouts with text that breaks careless tables."""
    texts = ("42", "[bold]not markup[/bold] [/]", "tab\tline\nnull\x00 \ufffd 🙂", "x" * 5000, "")
    return [_row(step, member, text) for member, text in enumerate(texts)]


def a_whole_run_is_taken(subject: LoggerSubject) -> None:
    """start, rollouts, scalars, state, finish, for every outcome of a run."""
    for outcome in ("completed", "failed", "interrupted"):
        logger: MetricLogger = subject.build()
        _log(subject, logger, _STEPS)
        logger.finish(outcome)


def what_is_logged_is_kept(subject: LoggerSubject) -> None:
    """Read back: each value at its step; what was not measured is absent, not 0."""
    kept = _read(subject)
    logger: MetricLogger = subject.build()
    _log(subject, logger, _STEPS)
    logger.finish("completed")
    _require_kept(kept(subject.work_dir), _STEPS)


def state_is_json(subject: LoggerSubject) -> None:
    """And does not change by a trip through it."""
    logger: MetricLogger = subject.build()
    _log(subject, logger, _STEPS)
    state = logger.state_dict()
    logger.finish("completed")
    try:
        back = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as problem:
        raise CheckFailed(f"state_dict() is not JSON: {problem}") from problem
    require(back == state, f"state_dict() {state} comes back from JSON as {back}")


def a_resumed_run_continues_the_record(subject: LoggerSubject) -> None:
    """Same run id, no step lost or doubled, steps after the checkpoint written anew."""
    first: MetricLogger = subject.build()
    _log(subject, first, {1: _STEPS[1], 2: _STEPS[2]})
    state = json.loads(json.dumps(first.state_dict()))
    first.finish("interrupted")
    second: MetricLogger = subject.build()
    _log(subject, second, {3: _STEPS[3]}, resume=state, resumed_from=2)
    again = second.state_dict()
    second.finish("completed")
    for key in subject.case.stable_state:
        require(
            key in state and again.get(key) == state[key],
            f"{key!r} was {state.get(key)!r} and is {again.get(key)!r} after the resume",
        )
    if subject.case.read is not None:
        _require_kept(subject.case.read(subject.work_dir), _STEPS)


def nothing_is_sent_over_the_network(subject: LoggerSubject) -> None:
    """No connection of this process leaves the machine under the case's options."""
    watch = _Connections()
    logger: MetricLogger = subject.build()
    _log(subject, logger, _STEPS)
    logger.finish("completed")
    found = watch.stop()
    require(not found, f"it connected to {', '.join(found)}")


class LoggerSuite(Suite):
    """Tries a logger with ``LoggerCase``s."""

    kind = "logger"
    checks = (
        a_whole_run_is_taken,
        what_is_logged_is_kept,
        state_is_json,
        a_resumed_run_continues_the_record,
        nothing_is_sent_over_the_network,
    )


class _Connections:
    """Remote addresses this process connects to from now until ``stop``.

    An audit hook sees every connection and replaces nothing; it cannot be removed, so it is
    switched off.
    """

    def __init__(self) -> None:
        self._found: list[str] = []
        self._on = True
        sys.addaudithook(self._see)

    def stop(self) -> list[str]:
        self._on = False
        return self._found

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        if self._on and event == "socket.connect" and isinstance(args[1], tuple):
            host = str(args[1][0])
            if not host.startswith(_LOCAL):
                self._found.append(host)


def _read(subject: LoggerSubject) -> Any:
    if subject.case.read is None:
        raise CheckSkipped("the case cannot read back what was logged")
    return subject.case.read


def _log(
    subject: LoggerSubject,
    logger: MetricLogger,
    steps: Mapping[int, Mapping[str, float]],
    *,
    resume: Mapping[str, Any] | None = None,
    resumed_from: int | None = None,
) -> None:
    info = RunInfo(
        name="conformance",
        recipe="suite/logger",
        run_dir=subject.work_dir,
        seed=0,
        config={"model": {"name": "tiny"}},
        resumed_from=resumed_from,
    )
    logger.start(info, resume)
    for step, values in steps.items():
        logger.rollouts(step, sample_rows(step))
        logger.scalars(step, values)


def _require_kept(
    found: Mapping[int, Mapping[str, float]], steps: Mapping[int, Mapping[str, float]]
) -> None:
    require(list(found) == list(steps), f"steps {list(found)} are kept of {list(steps)}")
    for step, values in steps.items():
        for name, value in values.items():
            got = found[step].get(name)
            require(
                got is not None and abs(got - value) <= 1e-6 * max(1.0, abs(value)),
                f"step {step}: {name} was {value} and is kept as {got}",
            )
        absent = {name for other in steps.values() for name in other} - set(values)
        extra = sorted(absent & set(found[step]))
        require(not extra, f"step {step}: {', '.join(extra)} was not measured but is kept")


def _row(step: int, member: int, text: str) -> RolloutRow:
    summary = RolloutSummary(
        id=f"{step}/{member}",
        task_id="sample",
        group=0,
        member=member,
        outcome=Outcome.COMPLETED,
        reward=float(member == 0),
        parts={"correct": float(member == 0)},
        passed=member == 0,
        turns=1,
        sampled_tokens=len(text),
    )
    question = Message(role="user", content="6 x 7?")
    return RolloutRow(
        step=step,
        summary=summary,
        messages=(question, Message(role="assistant", content=text)),
        advantage=0.5,
        verdicts={"correct": Verdict(score=float(member == 0), passed=member == 0)},
    )
