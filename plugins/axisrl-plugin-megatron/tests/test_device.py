"""Tests of axisrl_megatron.device."""

import pytest
import torch

from axisrl.errors import ConfigError
from axisrl_megatron.device import check_device, use_device
from axisrl_megatron.layout import Layout

CPU = torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine without CUDA devices")
def test_stages_on_a_cpu_are_refused_with_the_reason():
    with pytest.raises(ConfigError, match="exchanges stages on CUDA devices alone"):
        check_device(Layout(pipeline=2), CPU)


def test_a_model_on_a_cpu_is_refused_beside_a_gpu_that_is_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cuda:0")
    with pytest.raises(ConfigError, match="the model is on cpu"):
        check_device(Layout(pipeline=2), CPU)
    check_device(Layout(pipeline=2), torch.device("cuda:0"))


def test_a_model_without_stages_may_be_anywhere():
    check_device(Layout(tensor=2), CPU)


def test_a_thread_is_given_the_models_device(monkeypatch):
    given = []
    monkeypatch.setattr(torch.cuda, "set_device", given.append)
    use_device(torch.device("cuda:1"))
    use_device(CPU)
    assert given == [torch.device("cuda:1")]
