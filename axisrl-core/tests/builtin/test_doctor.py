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


@pytest.mark.parametrize(
    ("cuda", "usable", "state", "why"),
    [
        (None, False, "broken", "built without CUDA"),
        ("13.0", False, "broken", "driver is too old for CUDA 13.0"),
        ("13.0", True, "ok", "2 of them"),
    ],
)
def test_gpus_that_torch_cannot_use_are_told_with_the_reason(
    smi, monkeypatch, cuda, usable, state, why
):
    monkeypatch.setattr("torch.version.cuda", cuda)
    monkeypatch.setattr("torch.cuda.is_available", lambda: usable)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    found = smi(SMI)["torch on GPUs"]
    assert (found.state, why in found.found) == (state, True)


def test_without_a_gpu_nothing_is_said_of_torch_on_gpus(smi):
    assert "torch on GPUs" not in smi(FileNotFoundError("nvidia-smi"))
