"""Tests of axisrl_megatron.doctor."""

from importlib import metadata
from types import SimpleNamespace

import pytest

from axisrl_megatron import doctor

ENGINE = "transformer-engine"


@pytest.fixture
def look(monkeypatch, tmp_path):
    """``look(version, varlen)``: findings by name on a machine with this Megatron (or, as a dict,
    with these distributions) and a torch whose kernel's file says this; None is not there."""

    def found(version=None, varlen=None, torch=True):
        def version_of(name):
            there = version.get(name) if isinstance(version, dict) else version
            if there is None:
                raise metadata.PackageNotFoundError(name)
            return there

        if varlen is not None:
            (tmp_path / "nn/attention").mkdir(parents=True)
            (tmp_path / "nn/attention/varlen.py").write_text(varlen)
        spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)]) if torch else None
        pure = isinstance(version, dict) and "+" not in version.get(ENGINE, "")
        wheel = f"Root-Is-Purelib: {str(pure).lower()}"
        monkeypatch.setattr(metadata, "version", version_of)
        monkeypatch.setattr(
            metadata, "distribution", lambda _: SimpleNamespace(read_text=lambda _: wheel)
        )
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
    ("there", "state"),
    [
        ({ENGINE: "2.11.0+9d0b1c5"}, "ok"),
        ({ENGINE: "2.11.0", f"{ENGINE}-cu13": "2.11.0", f"{ENGINE}-torch": "2.11.0"}, "ok"),
        ({ENGINE: "2.20.2+9d0b1c5"}, "broken"),
        ({}, "missing"),
    ],
    ids=["from source", "wheels", "another version", "not there"],
)
def test_transformer_engine_is_there_or_what_it_costs_is_told(look, there, state):
    finding = look(there)[ENGINE]
    assert finding.state == state
    assert "transformer_impl: transformer_engine" in finding.cost + finding.found
    assert ("experts run one by one" in finding.cost) == (state == "missing")
    assert (str(doctor.ENGINES) in finding.found) == (state == "broken")


@pytest.mark.parametrize(
    "there",
    [
        {ENGINE: "2.11.0"},
        {ENGINE: "2.11.0", f"{ENGINE}-cu13": "2.11.0"},
        {ENGINE: "2.11.0", f"{ENGINE}-torch": "2.11.0"},
        {f"{ENGINE}-cu12": "2.11.0"},
        {ENGINE: "2.11.0", f"{ENGINE}-cu13": "2.11.0", f"{ENGINE}-torch": "2.10.0"},
    ],
    ids=["names alone", "no torch's part", "no kernels", "kernels alone", "versions"],
)
def test_a_part_of_transformer_engine_keeps_megatron_from_being_imported(look, there):
    finding = look(there)[ENGINE]
    assert finding.state == "broken"
    assert "Megatron-core cannot be imported" in finding.cost
    assert "uninstall" in finding.fix


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
