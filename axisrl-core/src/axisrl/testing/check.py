"""Runs a plugin's conformance suites outside pytest: ``axisrl plugins check NAME``.

1. The plugin is activated, its ``CASES`` are read, the suite of each case's kind is run.
2. A table on the terminal has a line a check; ``junit`` names an XML file for a CI system.
3. The result is 0 when nothing failed. A check that cannot be tried here is skipped with a reason.

It knows no promise itself: those are the suites'.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from xml.etree import ElementTree

from axisrl.plugins.building import last_line, missing_modules
from axisrl.testing.advantage import AdvantageSuite
from axisrl.testing.cases import Case
from axisrl.testing.components import describe, load_cases, manager, record_of
from axisrl.testing.correction import CorrectionSuite
from axisrl.testing.dataset import DatasetSuite
from axisrl.testing.engine import EngineSuite
from axisrl.testing.env import EnvSuite
from axisrl.testing.handles import HandleStoreSuite
from axisrl.testing.harness import Check, CheckFailed, CheckSkipped, Suite, run, title
from axisrl.testing.loss import LossSuite
from axisrl.testing.metrics import LoggerSuite
from axisrl.testing.model import ModelSuite
from axisrl.testing.packer import PackerSuite
from axisrl.testing.plugin import PluginCase, PluginSuite
from axisrl.testing.reward import RewardSuite
from axisrl.testing.service import ServiceSuite
from axisrl.testing.trainer import TrainerSuite
from axisrl.testing.verifier import VerifierSuite

if TYPE_CHECKING:
    from rich.console import Console

SUITES: tuple[type[Suite], ...] = (
    EnvSuite,
    VerifierSuite,
    RewardSuite,
    AdvantageSuite,
    LossSuite,
    CorrectionSuite,
    PackerSuite,
    HandleStoreSuite,
    EngineSuite,
    TrainerSuite,
    DatasetSuite,
    LoggerSuite,
    ModelSuite,
    ServiceSuite,
)
_STYLES = {"passed": "green", "failed": "bold red", "skipped": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check under one case."""

    component: str
    promise: str
    result: Literal["passed", "failed", "skipped"]
    message: str = ""
    seconds: float = 0.0


def run_check(name: str, junit: Path | None = None) -> int:
    """Check the plugin ``name``, print a table, write JUnit XML if asked; 1 when a check failed.

    Raises ``PluginError`` when the plugin is not installed or cannot be used.
    """
    from rich.console import Console

    results = list(check_plugin(name))
    _print_results(name, results, Console())
    if junit is not None:
        write_junit(name, results, junit)
    return int(any(result.result == "failed" for result in results))


def check_plugin(name: str) -> Iterator[CheckResult]:
    """Every check of the plugin and of each of its cases, one after the other."""
    manager.cache_clear()  # what is installed now, not at the last check of this process
    cases = load_cases(record_of(name))
    yield from _run_suite(PluginSuite, PluginCase(use=name))
    suites = {suite.kind: suite for suite in SUITES}
    for case in cases:
        missing = missing_modules(describe(case))
        if missing:
            reason = f"needs {', '.join(missing)}, which is not installed"
            yield CheckResult(component=case.title, promise="all", result="skipped", message=reason)
        elif case.kind in suites:
            yield from _run_suite(suites[case.kind], case)


def write_junit(name: str, results: Sequence[CheckResult], path: Path) -> None:
    """One ``testsuite`` with a ``testcase`` a check."""
    counts = {word: sum(r.result == word for r in results) for word in ("failed", "skipped")}
    suite = ElementTree.Element(
        "testsuite",
        name=f"axisrl plugins check {name}",
        tests=str(len(results)),
        failures=str(counts["failed"]),
        errors="0",
        skipped=str(counts["skipped"]),
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    for result in results:
        entry = ElementTree.SubElement(
            suite,
            "testcase",
            classname=result.component,
            name=result.promise,
            time=f"{result.seconds:.3f}",
        )
        if result.result != "passed":
            tag = "failure" if result.result == "failed" else "skipped"
            ElementTree.SubElement(entry, tag, message=_printable(result.message))
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _run_suite(suite: type[Suite], case: Case) -> Iterator[CheckResult]:
    for check in suite.checks:
        with tempfile.TemporaryDirectory(prefix="axisrl-check-") as folder:
            yield _run_one(suite, case, check, Path(folder))


def _run_one(suite: type[Suite], case: Case, check: Check, folder: Path) -> CheckResult:
    began = time.monotonic()
    result: Literal["passed", "failed", "skipped"] = "failed"
    message = ""
    try:
        run(check, suite.subject(case, folder))
        result = "passed"
    except CheckSkipped as reason:
        result, message = "skipped", str(reason)
    except CheckFailed as failure:
        message = str(failure)
    except Exception as problem:  # noqa: BLE001 - a component may raise anything; that fails it
        message = f"raised {last_line(problem)}"
    return CheckResult(
        component=case.title,
        promise=title(check),
        result=result,
        message=message,
        seconds=time.monotonic() - began,
    )


def _print_results(name: str, results: Sequence[CheckResult], console: Console) -> None:
    """The table, then why checks did not pass, then the counts."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"axisrl plugins check {name}", title_justify="left")
    for heading in ("component", "promise", "result", "s"):
        table.add_column(heading)
    shown = ""
    for result in results:
        table.add_row(
            Text(result.component if result.component != shown else ""),
            Text(result.promise),
            Text(result.result, style=_STYLES[result.result]),
            Text(f"{result.seconds:.2f}"),
        )
        shown = result.component
    console.print(table)
    for word in ("skipped", "failed"):
        for line in _reasons(result for result in results if result.result == word):
            console.print(Text(f"{word}: {_printable(line)}", style=_STYLES[word]), soft_wrap=True)
    counts = [(word, sum(r.result == word for r in results)) for word in _STYLES]
    console.print(", ".join(f"{count} {word}" for word, count in counts if count), markup=False)


def _reasons(results: Iterable[CheckResult]) -> list[str]:
    """One line a reason; checks of one component with the same reason share it."""
    promises: dict[tuple[str, str], list[str]] = {}
    for result in results:
        promises.setdefault((result.component, result.message), []).append(result.promise)
    return [
        f"{component}, {told[0] if len(told) == 1 else f'{len(told)} promises'}: {message}"
        for (component, message), told in promises.items()
    ]


def _printable(text: str) -> str:
    """Without the control characters that neither a terminal nor XML may get."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)
