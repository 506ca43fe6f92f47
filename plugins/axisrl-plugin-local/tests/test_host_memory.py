"""Tests of axisrl_local.host_memory on a CPU; what it frees is measured in test_memory_gpu."""

import torch

from axisrl_local.host_memory import HostMemory, model_tensors
from axisrl_local.weights_in import WeightReceiver

CPU = torch.device("cpu")


def test_on_a_cpu_nothing_moves():
    tensors = {"a": torch.ones(3), "b": torch.zeros(2, 2)}
    places = [tensor.data_ptr() for tensor in tensors.values()]
    memory = HostMemory(CPU, tensors.items)
    memory.offload()
    memory.reload()
    assert [tensor.data_ptr() for tensor in tensors.values()] == places
    assert tensors["a"].tolist() == [1, 1, 1]


def test_a_model_is_its_weights_its_buffers_and_what_an_adapter_is_added_to():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.BatchNorm1d(2))
    receiver = WeightReceiver(model)
    receiver._original("0.weight")
    names = [name for name, _ in model_tensors(model, receiver)]
    assert {"0.weight", "1.running_mean", "original/0.weight"} < set(names)
    assert len(names) == len(set(names))
    assert "original/0.weight" not in dict(model_tensors(model, None))
