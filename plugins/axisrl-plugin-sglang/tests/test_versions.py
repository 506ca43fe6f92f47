"""Tests of axisrl_sglang.versions."""

import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from axisrl_sglang.versions import SUPPORTED, outside


@pytest.fixture
def installed(monkeypatch):
    """``installed(version)``: that SGLang is; None is none."""

    def put(version):
        def found(name):
            if version is None:
                raise metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(metadata, "version", found)

    return put


@pytest.mark.parametrize("version", ["0.5.12", "0.5.15.post1", "0.5.23", None])
def test_nothing_is_said_of_a_release_inside_the_range_or_of_none(installed, version):
    installed(version)
    assert outside() == ""


@pytest.mark.parametrize("version", ["0.5.11", "0.5.24", "1.0.0"])
def test_a_release_outside_is_named_with_the_range(installed, version):
    installed(version)
    assert version in outside()
    assert str(SUPPORTED) in outside()


def test_the_extra_of_the_package_asks_for_the_range():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    (wanted,) = project["project"]["optional-dependencies"]["sglang"]
    assert Requirement(wanted).specifier == SUPPORTED
