import asyncio
import subprocess
import sys

import numpy as np
import pytest

from axisrl.errors import EnvironmentProblem
from axisrl.testing import CheckFailed, CheckSkipped, DatasetCase, Subject, Suite, run
from axisrl.testing import require_close as close

CASE = DatasetCase(use="toy/count", options={"path": "{folder}/a.txt", "n": 3})


def subject(tmp_path, case=CASE, builder=lambda ref, context: (ref, context)):
    return Subject(case=case, work_dir=tmp_path, builder=builder)


def test_require_close_says_by_how_much():
    with pytest.raises(CheckFailed, match=r"sum: off by 0\.5, more than 0\.1"):
        close([1.0, 2.5], [1.0, 2.0], atol=0.1, what="sum")


def test_require_close_never_takes_nan_for_close():
    with pytest.raises(CheckFailed, match="off by nan"):
        close([float("nan")], [float("nan")], atol=1.0, what="sum")


def test_require_close_never_broadcasts():
    with pytest.raises(CheckFailed, match=r"shape \(2,\) instead of \(1,\)"):
        close(np.zeros(2), np.zeros(1), atol=1.0, what="sum")


def test_empty_arrays_are_close():
    close([], [], atol=0.0, what="nothing")


def test_a_coroutine_check_is_given_the_cases_time_and_no_more(tmp_path):
    async def never_ends(subject):
        await asyncio.Event().wait()

    case = DatasetCase(use="toy/count", limit_s=0.01)
    with pytest.raises(CheckFailed, match=r"never ends: not over after 0\.01 s"):
        run(never_ends, subject(tmp_path, case))


def test_a_time_out_of_the_component_itself_is_its_own_error(tmp_path):
    async def check(subject):
        raise TimeoutError("the component's")

    with pytest.raises(TimeoutError, match="the component's"):
        run(check, subject(tmp_path))


def test_what_the_machine_lacks_skips_the_check(tmp_path):
    def check(subject):
        raise EnvironmentProblem("no GPU here", fix="buy one")

    with pytest.raises(CheckSkipped, match="no GPU here"):
        run(check, subject(tmp_path))


def test_what_would_download_is_not_tried(tmp_path):
    case = DatasetCase(use="toy/count", needs_network=True)
    with pytest.raises(CheckSkipped, match="the network"):
        run(lambda subject: subject.build().download(), subject(tmp_path, case))


def test_files_are_there_before_the_component_is_built(tmp_path):
    case = DatasetCase(use="toy/count", options={"path": "{folder}/a.txt"}, files={"a.txt": "é"})
    ref, _ = subject(tmp_path, case).build()
    assert ref.options == {"path": f"{tmp_path}/a.txt"}
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "é"


def test_a_case_is_built_with_its_services_in_its_own_folder(tmp_path):
    case = DatasetCase(use="toy/count", services={"model": "m"})
    ref, context = subject(tmp_path, case).build()
    assert (ref.kind, ref.use) == ("dataset", "toy/count")
    assert (context.run_dir, context.services) == (tmp_path, {"model": "m"})


def test_a_suite_takes_the_cases_of_its_kind():
    class Envs(Suite):
        kind = "env"
        cases = (CASE,)

    class Datasets(Envs):
        kind = "dataset"

    assert (Envs.own_cases(), Datasets.own_cases()) == ([], [CASE])


SUITE_TESTS = """
from axisrl.testing import CheckFailed, CheckSkipped, DatasetCase, DatasetSuite, Subject

def passes(subject): pass
def fails(subject): raise CheckFailed("promise broken by 3")
def is_skipped(subject): raise CheckSkipped("no reason")

class Short(DatasetSuite):
    checks = (passes, fails, is_skipped)

    @classmethod
    def subject(cls, case, work_dir):
        assert work_dir.is_dir()
        return Subject(case=case, work_dir=work_dir, builder=None)

class TestIt(Short):
    cases = CASES
"""


def pytest_of(tmp_path, cases):
    (tmp_path / "test_it.py").write_text(SUITE_TESTS.replace("CASES", cases))
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "test_it.py"]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout


def test_pytest_runs_every_check_on_every_case(tmp_path):
    told = pytest_of(tmp_path, '[DatasetCase(use="a/b"), DatasetCase(use="a/b", label="other")]')
    assert "2 failed, 2 passed, 2 skipped" in told
    assert "PASSED test_it.py::TestIt::test_promise[a/b (other)-passes]" in told
    assert "promise broken by 3" in told


def test_a_suite_without_a_case_is_an_error_and_not_a_pass(tmp_path):
    assert "TestIt has no case to try" in pytest_of(tmp_path, "[]")
