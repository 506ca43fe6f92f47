"""Tests of axisrl.ops.head_plan."""

import pytest
import torch

from axisrl.config.training import TrainingOptions
from axisrl.ops.head_plan import head_plan

MIB = 1 << 20
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 1)


@pytest.fixture
def card(monkeypatch):
    """Two cards; the second has 80 GiB, hardly any of it free."""
    sizes = {0: (8 * MIB, 24 << 30), 1: (8 * MIB, 80 << 30)}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: sizes[device.index])


def sizes(config, device):
    plan = head_plan(config, device, entropy=False)
    return plan.chunk_tokens, plan.kept_bytes / MIB


def test_a_cpu_gets_short_chunks_and_keeps_half_a_gibibyte():
    assert sizes(TrainingOptions(), CPU) == (1024, 512)


def test_another_device_is_treated_as_a_cpu():
    assert sizes(TrainingOptions(), torch.device("mps")) == (1024, 512)


@pytest.mark.usefixtures("card")
def test_a_card_gets_long_chunks_and_keeps_a_share_of_its_size():
    assert sizes(TrainingOptions(), CUDA) == (4096, 80 * 1024 / 32)


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("device", [CPU, CUDA], ids=str)
def test_what_is_given_holds_on_every_device(device):
    config = TrainingOptions(chunk_tokens=3, kept_logits_mib=0)
    assert sizes(config, device) == (3, 0)


@pytest.mark.usefixtures("card")
def test_each_option_is_chosen_by_itself():
    assert sizes(TrainingOptions(chunk_tokens=3), CUDA) == (3, 80 * 1024 / 32)
    assert sizes(TrainingOptions(kept_logits_mib=7), CUDA) == (4096, 7)


@pytest.mark.parametrize("entropy", [True, False])
def test_entropy_is_computed_where_it_is_asked_for(entropy):
    assert head_plan(TrainingOptions(), CPU, entropy=entropy).entropy is entropy
