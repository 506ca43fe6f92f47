"""``axisrl plugins check`` without a terminal: results, table, JUnit, exit code."""

from xml.etree import ElementTree

import pytest

from axisrl.errors import PluginError
from axisrl.testing.check import SUITES, CheckResult, check_plugin, run_check, write_junit
from axisrl.testing.components import manager
from axisrl.testing.plugin import CHECKED_KINDS

PLUGIN = """
from axisrl.plugins import VerifierComponent, hookimpl

@hookimpl
def axisrl_verifiers():
    return [
        VerifierComponent(name="exact", target="{module}.parts:Exact", summary="Exact",
                          extras=EXTRA, modules=EXTRA),
    ]
"""
PARTS = """
from axisrl.testing.fakes import ExactVerifier

class Exact(ExactVerifier):
    pass
"""
SOFT = """
from axisrl.types import Verdict

class Exact:
    def __init__(self, config, context):
        pass

    async def verify(self, task, rollout):
        return Verdict(score=1.0, passed=True, detail="[red]always[/red]")
"""
CASES = """
from axisrl.testing import VerifierCase
from axisrl.types import Task
TASK = Task(id="sum", data={"question": "1 + 1?", "answer": "2"})
CASES = [VerifierCase(use="toys/exact", task=TASK, gold=("2",), wrong=("3",), required=("answer",))]
"""


@pytest.fixture(autouse=True)
def fresh_manager():
    yield
    manager.cache_clear()


@pytest.fixture
def install(site):
    def add(parts=PARTS, extra=(), cases=CASES):
        source = PLUGIN.replace("EXTRA", repr(extra))
        site.add("toys", source, files={"parts.py": parts, "conformance.py": cases, "py.typed": ""})

    return add


def test_a_good_plugin_exits_with_0_and_shows_every_promise(install, capsys):
    install()
    assert run_check("toys") == 0
    shown = capsys.readouterr().out
    assert "gold answers score one" in shown
    assert "17 passed" in shown


def test_a_broken_promise_exits_with_1_and_says_which_and_by_how_much(install, capsys):
    install(parts=SOFT)
    assert run_check("toys") == 1
    shown = capsys.readouterr().out
    assert "failed: toys/exact, wrong answers score lower: the wrong answer '3' got" in shown


def test_a_component_that_raises_fails_with_the_exception(install):
    install(parts=SOFT.replace("return Verdict", "raise OSError('disk is full')\n        return V"))
    told = {result.message for result in check_plugin("toys") if result.result == "failed"}
    assert "raised OSError: disk is full" in told


def test_a_component_without_its_extra_is_skipped_with_the_reason(install):
    install(extra=("no_such_module",))
    results = [result for result in check_plugin("toys") if result.component == "toys/exact"]
    assert [result.result for result in results] == ["skipped"]
    assert results[0].message == "needs no_such_module, which is not installed"


def test_checks_skipped_for_one_reason_share_a_line(install, capsys):
    install(cases=CASES.replace("wrong=", "needs_network=True, wrong="))
    assert run_check("toys") == 0
    shown = capsys.readouterr().out
    assert "skipped: toys/exact, 9 promises: it would need the network" in shown


def test_a_component_that_nothing_is_tried_on_fails(install):
    install(cases="CASES = []")
    failed = [result for result in check_plugin("toys") if result.result == "failed"]
    assert [result.promise for result in failed] == ["every component has a case"]


def test_a_plugin_that_is_not_installed_is_a_plugin_error():
    with pytest.raises(PluginError, match="nowhere"):
        run_check("nowhere")


def test_junit_holds_one_testcase_a_check(install, tmp_path, capsys):
    install(parts=SOFT)
    path = tmp_path / "reports" / "toys.xml"
    run_check("toys", path)
    suite = ElementTree.parse(path).getroot()
    assert suite.tag == "testsuite"
    assert int(suite.get("tests")) == len(suite) > 10
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure")) > 0
    assert {case.get("classname") for case in suite} == {"toys", "toys/exact"}


def test_junit_is_xml_whatever_a_component_said(tmp_path):
    message = "said \x00\x1b[31m <b> & \ud800"
    result = CheckResult(component="a/b", promise="p", result="failed", message=message)
    write_junit("a", [result], tmp_path / "a.xml")
    (failure,) = ElementTree.parse(tmp_path / "a.xml").getroot().iter("failure")
    assert failure.get("message") == "said \ufffd\ufffd[31m <b> & \ufffd"


def test_every_kind_with_a_suite_must_have_cases():
    assert {suite.kind for suite in SUITES} == CHECKED_KINDS
