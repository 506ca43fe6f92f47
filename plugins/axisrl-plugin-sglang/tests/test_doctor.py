"""Tests of axisrl_sglang.doctor."""

from importlib import metadata
from types import SimpleNamespace

import pytest

from axisrl_sglang import doctor
from axisrl_sglang.versions import SUPPORTED

PINS = ["torch==2.11.0", "sglang-kernel==0.4.5", "xgrammar==0.2.1", "torch==9; extra == 'other'"]
VERSIONS = {"sglang": "0.5.16", "torch": "2.11.0+cu130", "sglang-kernel": "0.4.5"}


@pytest.fixture
def look(monkeypatch, tmp_path):
    """``look(versions, modules)``: findings by name on a machine that has these."""

    def found(versions, modules, files=()):
        def version(name):
            if name not in versions:
                raise metadata.PackageNotFoundError(name)
            return versions[name]

        for file in files:
            (tmp_path / file).touch()
        spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
        monkeypatch.setattr(metadata, "version", version)
        monkeypatch.setattr(metadata, "requires", lambda name: PINS)
        monkeypatch.setattr(
            "importlib.util.find_spec", lambda name: spec if name in modules else None
        )
        return {finding.name: finding for finding in doctor.stack()}

    return found


def test_without_sglang_there_is_one_line(look):
    (finding,) = look({}, ()).values()
    assert (finding.name, finding.state) == ("sglang", "missing")
    assert "sglang/engine" in finding.cost


def test_versions_that_are_pinned_are_ok_with_their_local_part(look):
    found = look(VERSIONS, {"torch", "sgl_kernel"})
    assert [found[name].state for name in ("sglang", "torch", "sglang-kernel")] == ["ok"] * 3


def test_another_version_than_the_pinned_one_is_named_with_the_pin(look):
    found = look(VERSIONS | {"torch": "2.13.0"}, {"torch", "sgl_kernel"})
    assert found["torch"].state == "broken"
    assert found["torch"].found == "2.13.0, and SGLang wants ==2.11.0"


def test_an_sglang_outside_the_supported_range_is_named_with_the_range(look):
    found = look(VERSIONS | {"sglang": "0.6.0"}, {"torch", "sgl_kernel"})
    assert found["sglang"].state == "broken"
    assert found["sglang"].found == (
        f"SGLang 0.6.0 is installed, and axisrl-plugin-sglang supports {SUPPORTED}"
    )


def test_a_missing_part_is_named_with_what_it_costs(look):
    found = look(VERSIONS, {"torch", "sgl_kernel"})
    assert found["torch-memory-saver"].state == "missing"
    assert "hand_over" in found["torch-memory-saver"].cost


def test_a_module_without_metadata_is_there(look):
    assert look(VERSIONS, {"torch", "sgl_kernel", "xgrammar"})["xgrammar"].state == "ok"


def test_flash_attention_is_a_file_that_may_be_left_out(look):
    assert look(VERSIONS, {"sgl_kernel"})["FlashAttention 3"].state == "missing"
    found = look(VERSIONS, {"sgl_kernel"}, files=["flash_ops.abi3.so"])
    assert found["FlashAttention 3"].state == "ok"
