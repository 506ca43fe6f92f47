"""Tests of axisrl_sglang.updates."""

import dataclasses

import pytest

from axisrl.errors import WeightSyncError
from axisrl.types import AdapterMeta, WeightUpdate
from axisrl_sglang.messages import Report
from axisrl_sglang.updates import TRANSPORTS, described, require_served

UPDATE = WeightUpdate(
    version=4, transport="disk", location="/x", tensors=(), checksum="c", adapter=None
)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_transport_is_described(transport):
    update = dataclasses.replace(UPDATE, transport=transport, receivers=3)
    weights = described(update, verify=True, receiver="sglang-1")
    assert (weights.version, weights.location, weights.checksum) == (4, "/x", "c")
    assert (weights.transport, weights.receiver, weights.receivers) == (transport, "sglang-1", 3)


def test_an_unknown_transport_is_refused():
    with pytest.raises(WeightSyncError, match="'pigeon'"):
        described(dataclasses.replace(UPDATE, transport="pigeon"), verify=True)


def test_memory_of_one_gpu_is_refused_where_several_ranks_would_read_it():
    shared = dataclasses.replace(UPDATE, transport="cuda_ipc")
    with pytest.raises(WeightSyncError, match="'cuda_ipc' in tp_size 2 processes") as refused:
        described(shared, verify=True, ranks=2)
    assert "trainer.transport to nccl" in refused.value.fix
    assert described(UPDATE, verify=True, ranks=2).version == 4


def test_an_adapter_is_refused_with_what_to_do():
    adapter = AdapterMeta(rank=1, scale=1.0, targets=())
    with pytest.raises(WeightSyncError, match="low-rank adapter") as refused:
        described(dataclasses.replace(UPDATE, adapter=adapter), verify=True)
    assert "trainer.lora.update merged" in refused.value.fix


@pytest.mark.parametrize(
    ("changed", "state"), [(True, "no longer whole"), (False, "kept what it had")]
)
def test_a_rank_that_does_not_serve_it_is_named(changed, state):
    reports = [Report("c"), Report("c", "it broke", changed)]
    with pytest.raises(WeightSyncError, match=f"update 4 .* rank 1 .*it broke; .*{state}"):
        require_served(UPDATE, reports)


def test_ranks_that_serve_it_are_believed():
    require_served(UPDATE, [Report("c"), Report("c")])
