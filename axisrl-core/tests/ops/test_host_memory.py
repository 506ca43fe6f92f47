"""Tests of axisrl.ops.host_memory on a CPU; what it frees is measured in test_memory_gpu."""

import pytest
import torch

from axisrl.errors import RunFailed
from axisrl.ops.host_memory import HostMemory, TrainerMemory

CPU = torch.device("cpu")


def test_on_a_cpu_nothing_moves():
    tensors = {"a": torch.ones(3), "b": torch.zeros(2, 2)}
    places = [tensor.data_ptr() for tensor in tensors.values()]
    memory = HostMemory(CPU, tensors.items)
    memory.offload()
    memory.reload()
    assert [tensor.data_ptr() for tensor in tensors.values()] == places
    assert tensors["a"].tolist() == [1, 1, 1]


def test_what_a_trainer_moved_away_is_named_when_it_is_asked_for():
    parts = {"weights": HostMemory(CPU, {"w": torch.ones(2)}.items)}
    memory = TrainerMemory("policy", parts)
    memory.offload(["weights", "optimizer"])
    memory.require("optimizer")  # there is none, so it is not away
    with pytest.raises(RunFailed, match="weights of 'policy' were moved off the device"):
        memory.require("weights")
    memory.reload(["weights"])
    memory.require("weights")
