"""Tests of axisrl_megatron.doctor."""

from importlib import metadata
from types import SimpleNamespace

import pytest

from axisrl_megatron import doctor


@pytest.fixture
def look(monkeypatch, tmp_path):
    """``look(version, varlen)``: findings by name on a machine with this Megatron and a torch whose
    kernel's file says this; None is not there."""

    def found(version=None, varlen=None, torch=True):
        def version_of(name):
            if version is None:
                raise metadata.PackageNotFoundError(name)
            return version

        if varlen is not None:
            (tmp_path / "nn/attention").mkdir(parents=True)
            (tmp_path / "nn/attention/varlen.py").write_text(varlen)
        spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)]) if torch else None
        monkeypatch.setattr(metadata, "version", version_of)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
        return {finding.name: finding for finding in doctor.stack()}

    return found


@pytest.mark.parametrize(
    ("version", "state"), [("0.16.1", "ok"), ("0.19.2", "broken"), (None, "missing")]
)
def test_megatron_is_there_of_another_version_or_not(look, version, state):
    finding = look(version)["megatron-core"]
    assert finding.state == state
    assert ("megatron/trainer" in finding.cost) == (state != "ok")
    assert (str(doctor.SUPPORTED) in finding.found) == (state == "broken")


@pytest.mark.parametrize(
    ("varlen", "state"),
    [("def varlen_attn(window_size)", "ok"), ("def varlen_attn()", "missing"), (None, "missing")],
)
def test_a_torch_without_the_kernel_says_what_is_slower(look, varlen, state):
    finding = look(varlen=varlen)["variable-length attention"]
    assert finding.state == state
    assert ("slower" in finding.cost) == (state != "ok")


def test_without_torch_nothing_is_trained(look):
    assert look(torch=False)["variable-length attention"].cost == "nothing is trained"
