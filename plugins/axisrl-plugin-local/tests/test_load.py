"""Tests of axisrl_local.load."""

import dataclasses
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from axisrl.errors import EnvironmentProblem
from axisrl_local.load import load_model, resolve_device


@pytest.fixture
def copied(tiny, tmp_path):
    """The tiny model in a folder that may be damaged."""
    path = shutil.copytree(tiny.path, tmp_path / "copy")
    return dataclasses.replace(tiny, path=path)


def test_auto_is_cuda_only_where_there_is_one():
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_an_unknown_device_is_an_environment_problem():
    with pytest.raises(EnvironmentProblem, match="'abacus' is not a torch device"):
        resolve_device("abacus")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_without_a_device_is_an_environment_problem():
    with pytest.raises(EnvironmentProblem, match="sees no CUDA device"):
        resolve_device("cuda")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_dtype_of_the_spec_is_that_of_every_weight(tiny, dtype):
    model = load_model(dataclasses.replace(tiny, dtype=dtype))
    assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}
    assert not model.training


def test_a_folder_without_a_config_names_the_folder(tiny, tmp_path):
    with pytest.raises(EnvironmentProblem, match=f"{tmp_path} has no config"):
        load_model(dataclasses.replace(tiny, path=tmp_path))


def test_a_missing_weight_is_named_and_never_drawn_at_random(copied):
    file = copied.path / "model.safetensors"
    weights = load_file(file)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(EnvironmentProblem, match=r"first model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(copied)


def test_a_damaged_weights_file_is_an_environment_problem(copied):
    (copied.path / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(EnvironmentProblem, match="cannot be loaded"):
        load_model(copied)


def test_a_folder_without_weights_is_an_environment_problem(copied):
    (copied.path / "model.safetensors").unlink()
    with pytest.raises(EnvironmentProblem, match="cannot be loaded"):
        load_model(copied)
