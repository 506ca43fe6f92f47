"""Tests of axisrl.ops.state_files."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from axisrl.errors import CheckpointError
from axisrl.ops.state_files import read_counters, reading, write_counters, writing


def test_counters_come_back_and_those_of_another_format_do_not(tmp_path):
    write_counters(tmp_path, 3, {"steps": 7})
    assert read_counters(tmp_path, 3) == {"format": 3, "steps": 7}
    with pytest.raises(CheckpointError, match="has format 3, not 4"), reading(tmp_path):
        read_counters(tmp_path, 4)


def test_a_disk_that_refuses_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="No such file"), writing():
        save_file({"a": torch.ones(1)}, tmp_path / "nowhere" / "a.safetensors")


def test_what_is_missing_or_damaged_names_the_folder(tmp_path):
    with pytest.raises(CheckpointError, match=str(tmp_path)), reading(tmp_path):
        read_counters(tmp_path, 1)
    (tmp_path / "a.safetensors").write_bytes(b"torn")
    with pytest.raises(CheckpointError, match="cannot be loaded"), reading(tmp_path):
        load_file(tmp_path / "a.safetensors")
