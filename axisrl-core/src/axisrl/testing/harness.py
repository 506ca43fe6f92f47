"""What every suite is made of: checks, subjects and the class that turns them into pytest tests.

1. A check is a plain function (or coroutine) of one :class:`Subject`; its name is the promise. It
   raises :class:`CheckFailed` saying which promise broke and by how much, or :class:`CheckSkipped`.
2. A suite is a kind and a tuple of checks. ``axisrl plugins check`` runs them with :func:`run`, a
   subclass in a test module lets pytest run them: same functions, same cases.

It does not know how a plugin is found: that is the ``builder``'s
(:mod:`axisrl.testing.components`). pytest is imported only when it runs a suite.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from axisrl.errors import EnvironmentProblem
from axisrl.plugins.components import Component, ComponentRef, Kind
from axisrl.testing.cases import Case
from axisrl.types import BuildContext

CaseT = TypeVar("CaseT", bound=Case)
Builder = Callable[[ComponentRef, BuildContext], Any]
"""Makes any component; picklable, so that a check can build one in another process."""


class CheckFailed(AssertionError):
    """A promise of the protocol does not hold."""


class CheckSkipped(Exception):
    """A promise that cannot be tried here; the message says why."""


def require(condition: object, message: str) -> None:
    """Raise ``CheckFailed(message)`` unless the condition holds."""
    __tracebackhide__ = True  # pytest then shows the check, not this line
    if not condition:
        raise CheckFailed(message)


def require_close(got: ArrayLike, want: ArrayLike, *, atol: float, what: str) -> None:
    """Fail with the largest difference when two arrays differ by more than ``atol``, in shape, or
    where one is NaN."""
    left, right = np.asarray(got, np.float64), np.asarray(want, np.float64)
    require(left.shape == right.shape, f"{what}: shape {left.shape} instead of {right.shape}")
    worst = float(np.max(np.abs(left - right), initial=0.0))
    require(worst <= atol, f"{what}: off by {worst:.3g}, more than {atol:.3g}")


@dataclass(frozen=True, kw_only=True)
class Subject(Generic[CaseT]):
    """One component under one case."""

    case: CaseT
    work_dir: Path
    """Empty; becomes the run folder of what is built."""
    builder: Builder
    descriptor: Component | None = None
    """What the plugin says about the component; None when it is tried outside a plugin."""

    def __post_init__(self) -> None:
        for name, content in self.case.files.items():
            (self.work_dir / name).write_text(content, encoding="utf-8")

    @property
    def ref(self) -> ComponentRef:
        """The component and options the case names."""
        folder = str(self.work_dir)
        options = {
            name: value.replace("{folder}", folder) if isinstance(value, str) else value
            for name, value in self.case.options.items()
        }
        return ComponentRef(kind=self.case.kind, use=self.case.use, options=options)

    def context(self, **changes: Any) -> BuildContext:
        """A context of seed 0 in ``work_dir``, with ``changes`` laid over."""
        base = BuildContext(run_dir=self.work_dir)
        services = {name: self._service(name, it) for name, it in self.case.services.items()}
        return dataclasses.replace(base, **{"services": services, **changes})

    def build(self, context: BuildContext | None = None) -> Any:
        """A fresh component."""
        return self.builder(self.ref, context or self.context())

    def build_other(self, kind: Kind, use: str, **options: Any) -> Any:
        """A component that the check needs beside the one under test."""
        return self.builder(ComponentRef(kind=kind, use=use, options=options), self.context())

    def _service(self, name: str, value: Any) -> Any:
        if not isinstance(value, ComponentRef):
            return value
        from axisrl.testing.fakes.service import LocalService

        return LocalService(self.builder(value, BuildContext(run_dir=self.work_dir)), name)


Check = Callable[[Subject[Any]], Awaitable[None] | None]


def run(check: Check, subject: Subject[Any]) -> None:
    """Run one check; a coroutine gets its own event loop and ``case.limit_s``.

    What the machine lacks is no fault of the component: it skips the check.
    """
    if subject.case.needs_network:
        raise CheckSkipped("it would need the network")
    try:
        done = check(subject)
        if inspect.isawaitable(done):
            asyncio.run(_limited(check, done, subject.case.limit_s))
    except EnvironmentProblem as problem:
        raise CheckSkipped(problem.message) from problem


async def _limited(check: Check, work: Awaitable[None], limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s) as scope:
            await work
    except TimeoutError:
        if not scope.expired():
            raise
        raise CheckFailed(f"{title(check)}: not over after {limit_s:g} s") from None


def title(check: Check) -> str:
    """The promise as a sentence."""
    return check.__name__.replace("_", " ")


class Suite:
    """Inherit one of the kind's suites in a test module and set ``cases``.

    ``cases`` may hold cases of other kinds; those are left to the other suites.
    """

    kind: ClassVar[Kind]
    checks: ClassVar[tuple[Check, ...]] = ()
    cases: ClassVar[Sequence[Case]] = ()

    @classmethod
    def own_cases(cls) -> list[Case]:
        """The cases of this suite's kind."""
        return [case for case in cls.cases if case.kind == cls.kind]

    @classmethod
    def subject(cls, case: Case, work_dir: Path) -> Subject[Any]:
        """The case's component, built by the plugin manager."""
        from axisrl.testing.components import build_component, describe

        return Subject(
            case=case, work_dir=work_dir, builder=build_component, descriptor=describe(case)
        )

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """One test a case and check (called by pytest)."""
        if "check" not in metafunc.fixturenames:
            return
        own = self.own_cases()
        require(own, f"{type(self).__name__} has no case to try")
        metafunc.parametrize("case", own, ids=[case.title for case in own])
        metafunc.parametrize("check", self.checks, ids=[check.__name__ for check in self.checks])

    def test_promise(self, case: Case, check: Check, tmp_path: Path) -> None:
        """The check holds for the case."""
        import pytest

        try:
            run(check, self.subject(case, tmp_path))
        except CheckSkipped as reason:
            pytest.skip(str(reason))
