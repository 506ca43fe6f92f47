"""Tests of axisrl.ops.broadcast.group, over gloo in threads. NCCL takes a GPU for each member."""

import os

import pytest
import torch

from axisrl.ops.broadcast import group as module
from axisrl.ops.broadcast.group import (
    BroadcastGroup,
    Place,
    backend_for,
    broadcast,
    connect,
    open_store,
)

CPU = torch.device("cpu")


@pytest.fixture
def store():
    return open_store("127.0.0.1", 10.0)


def member(address, name, rank, size, timeout_s=10.0):
    return BroadcastGroup(
        connect(address, timeout_s), Place(name, rank, size, "gloo"), timeout_s, CPU
    )


def test_receivers_hold_what_the_sender_sent_more_buffers_than_are_under_way(store, together):
    sent = [torch.randint(0, 256, (1000,), dtype=torch.uint8) for _ in range(9)]
    got = [[torch.zeros_like(each) for each in sent] for _ in range(2)]

    def take_part(rank, buffers):
        group = member(store[1], "g", rank, 3)
        broadcast((group, buffer) for buffer in buffers)
        broadcast((group, buffer) for buffer in buffers[:1])
        group.close()

    together(*(lambda rank=n, b=b: take_part(rank, b) for n, b in enumerate([sent, *got])))
    assert all(torch.equal(a, b) for each in got for a, b in zip(each, sent, strict=True))


def test_who_does_not_come_is_named(store):
    with pytest.raises(ConnectionError, match=r"rank 0, 2 of 3 did not come .* within 0.1 s"):
        member(store[1], "g", 1, 3, timeout_s=0.1)


def test_a_member_that_leaves_breaks_the_wait_of_the_others(store, together):
    def stay():
        group = member(store[1], "g", 1, 2)
        broadcast([(group, torch.zeros(8, dtype=torch.uint8))])

    def leave():
        member(store[1], "g", 0, 2).close()

    problem, _ = together(stay, leave)
    assert isinstance(problem, ConnectionError)


def test_nccl_is_for_members_with_a_gpu_each():
    assert backend_for(["GPU-1", "GPU-2", "GPU-3"]) == "nccl"
    assert backend_for(["GPU-1", "GPU-1"]) == "gloo"
    assert backend_for(["GPU-1", ""]) == "gloo"
    assert backend_for(["", ""]) == "gloo"


@pytest.mark.parametrize("chosen", [None, "1"])
def test_what_nccl_reads_is_set_while_a_group_starts_and_then_as_it_was(monkeypatch, chosen):
    names = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCH_NCCL_BLOCKING_WAIT", "0")
    if chosen is not None:
        monkeypatch.setenv("NCCL_CUMEM_ENABLE", chosen)
    with module._environment():
        assert [os.environ[name] for name in names] == ["1", chosen or "0", "0"]
    assert [os.environ.get(name) for name in names] == ["0", chosen, None]
