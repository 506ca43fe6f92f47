"""Tests of axisrl.builtin.doctor."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from axisrl.builtin.doctor import machine, package_finding

SMI = "580.10, NVIDIA H200, 143771 MiB\n580.10, NVIDIA H200, 143771 MiB\n"


@pytest.fixture
def smi(monkeypatch):
    """``smi(answer)``: what nvidia-smi prints, or raises."""

    def answers(answer):
        def run(command, **options):
            assert command[0] == "nvidia-smi"
            if isinstance(answer, Exception):
                raise answer
            return SimpleNamespace(stdout=answer)

        monkeypatch.setattr(subprocess, "run", run)
        return {finding.name: finding for finding in machine()}

    return answers


def test_one_driver_and_every_gpu_are_told(smi):
    found = smi(SMI)
    assert found["NVIDIA driver"].found == "580.10"
    assert found["GPU 1"].found == "NVIDIA H200, 143771 MiB"


def test_a_machine_without_a_driver_is_a_cpu_machine(smi):
    found = smi(FileNotFoundError("nvidia-smi"))
    assert found["NVIDIA driver"].state == "missing"
    assert "CPU" in found["NVIDIA driver"].cost


def test_a_driver_that_does_not_answer_is_broken(smi):
    found = smi(subprocess.TimeoutExpired("nvidia-smi", 20))
    assert found["NVIDIA driver"].state == "broken"


def test_a_torch_that_does_not_import_is_broken_and_one_that_is_not_there_missing(smi, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # an ImportError that names it
    assert smi(SMI)["torch"].state == "missing"


def test_a_package_that_is_missing_is_told_with_what_to_do():
    finding = package_finding("axisrl-nowhere", cost="much", fix="get it")
    assert (finding.state, finding.cost, finding.fix) == ("missing", "much", "get it")
    assert package_finding("numpy", cost="", fix="").state == "ok"
