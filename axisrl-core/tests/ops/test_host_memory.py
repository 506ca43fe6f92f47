"""Tests of axisrl.ops.host_memory on a CPU; what it frees is measured in test_memory_gpu."""

import torch

from axisrl.ops.host_memory import HostMemory

CPU = torch.device("cpu")


def test_on_a_cpu_nothing_moves():
    tensors = {"a": torch.ones(3), "b": torch.zeros(2, 2)}
    places = [tensor.data_ptr() for tensor in tensors.values()]
    memory = HostMemory(CPU, tensors.items)
    memory.offload()
    memory.reload()
    assert [tensor.data_ptr() for tensor in tensors.values()] == places
    assert tensors["a"].tolist() == [1, 1, 1]
