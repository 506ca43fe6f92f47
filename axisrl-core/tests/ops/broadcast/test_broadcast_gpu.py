"""Weights sent between GPUs. What needs two of them runs over NCCL, each member in a thread."""

import logging
from functools import partial

import pytest
import torch

from axisrl.ops.broadcast.group import BroadcastGroup, Place, broadcast, connect, open_store
from axisrl.ops.broadcast.leader import Leader
from axisrl.ops.broadcast.receiver import Party, Receiver
from axisrl.ops.checksum import buckets_checksum, weights_checksum
from axisrl.ops.flat_buckets import fill

GPUS = torch.cuda.device_count()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
two_gpus = pytest.mark.skipif(GPUS < 2, reason="needs two CUDA devices")


@pytest.fixture
def sender(caplog):
    """Weights on GPU 0, and who sends them."""
    caplog.set_level(logging.INFO, "axisrl.broadcast")
    weights = {f"w{n}": torch.randn(3000, 1000 + n, device="cuda:0") for n in range(9)}
    leader = Leader("127.0.0.1", senders=1, timeout_s=10.0)
    yield leader, weights
    leader.close()


def offer(sender):
    leader, weights = sender
    for value in weights.values():
        value.normal_()
    return leader.offer(lambda: fill(weights, 30_000_000)), weights_checksum(weights)


def test_nccl_starts_sends_and_ends_with_one_member():
    _, address = open_store("127.0.0.1", 10.0)
    device = torch.device("cuda:0")
    place = Place("g", 0, 1, "nccl")
    group = BroadcastGroup(connect(address, 10.0), place, 10.0, device)
    buffers = [torch.full((1000,), n, dtype=torch.uint8, device=device) for n in range(9)]
    broadcast((group, buffer) for buffer in buffers)
    assert [int(buffer[0]) for buffer in buffers] == list(range(9))
    group.close()


def test_who_shares_a_gpu_gets_the_weights_through_the_machines_memory(sender, caplog):
    receiver = Receiver()
    for _ in range(2):
        location, checksum = offer(sender)
        buckets = receiver.receive(location, Party("engine"), torch.device("cuda:0"))
        assert buckets_checksum(buckets) == checksum
        assert all(bucket.buffer.is_cuda for bucket in buckets)
    assert "by gloo" in caplog.text


@two_gpus
def test_weights_go_from_one_gpu_to_the_others_over_nccl(sender, together, caplog):
    receivers = [Receiver() for _ in range(1, GPUS)]
    for _ in range(3):
        location, checksum = offer(sender)
        calls = [
            partial(
                receiver.receive,
                location,
                Party(f"engine-{n}", receivers=GPUS - 1),
                torch.device(f"cuda:{n}"),
            )
            for n, receiver in enumerate(receivers, start=1)
        ]
        found = together(*calls)
        assert [buckets_checksum(buckets) for buckets in found] == [checksum] * (GPUS - 1)
    assert "by nccl" in caplog.text
    assert len({receiver._name for receiver in receivers}) == 1


@two_gpus
def test_a_receiver_that_leaves_its_group_costs_another_round_over_nccl(sender, caplog):
    class Leaves(Receiver):
        left = False

        def _join(self, *args):
            super()._join(*args)
            if not self.left:
                self.left = True
                raise RuntimeError("left on purpose")

    location, checksum = offer(sender)
    buckets = Leaves().receive(location, Party("engine"), torch.device("cuda:1"))
    assert buckets_checksum(buckets) == checksum
    assert "did not reach all of engine rank 0" in caplog.text
