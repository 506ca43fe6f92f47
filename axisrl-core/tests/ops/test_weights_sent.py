"""Tests of axisrl.ops.weights_sent, over gloo."""

import pytest
import torch

from axisrl.errors import EnvironmentProblem, RankLost, RunFailed, WeightSyncError
from axisrl.ops.broadcast.receiver import Party, Receiver
from axisrl.ops.checksum import buckets_checksum, weights_checksum
from axisrl.ops.flat_buckets import views
from axisrl.ops.weights_sent import WeightSender
from axisrl.types import AdapterMeta, Ranks

CPU = torch.device("cpu")
WEIGHTS = {"a": torch.arange(6.0).view(2, 3).T, "b": torch.ones(2, dtype=torch.bfloat16)}


@pytest.fixture
def senders():
    """``senders(size)``: one a rank, joined; ``held[rank]`` is what a rank has."""
    made = []

    def make(size, held=None, *, joined=True):
        held = held or [WEIGHTS] * size
        for rank in range(size):
            ranks = Ranks(rank=rank, size=size, rendezvous="")
            take = lambda rank=rank: held[rank]  # noqa: E731
            sizes = {"bucket_bytes": 2**20, "timeout_s": 10.0}
            made.append(WeightSender(ranks, take, host="127.0.0.1", **sizes))
        if joined:
            for sender in made:
                sender.join(made[0].address)
        return made

    yield make
    for sender in made:
        sender.close()
        sender.close()


def received(update):
    return Receiver().receive(update.location, Party("engine"), CPU)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_an_update_can_be_had_and_is_described(senders, size):
    first, *_ = senders(size)
    adapter = AdapterMeta(rank=2, scale=0.5, targets=("m",))
    update = first.publish(3, WEIGHTS, adapter)
    assert (update.version, update.transport, update.adapter) == (3, "nccl", adapter)
    assert [(t.name, t.shape, t.dtype) for t in update.tensors] == [
        ("a", (3, 2), "float32"),
        ("b", (2,), "bfloat16"),
    ]
    buckets = received(update)
    found = {name: value for bucket in buckets for name, value in views(bucket).items()}
    assert all(torch.equal(found[name], value) for name, value in WEIGHTS.items())
    assert buckets_checksum(buckets) == update.checksum == weights_checksum(WEIGHTS)


def test_ranks_share_the_buckets_of_a_small_model_too(senders):
    first, second = senders(2)
    first.publish(1, WEIGHTS)
    held = [[e.name for b in s._part._share._buckets for e in b.entries] for s in (first, second)]
    assert sorted(held) == [["a"], ["b"]]


def test_a_rank_with_other_weights_shows_in_the_checksum(senders):
    first, _ = senders(2, [WEIGHTS, {name: value * 2 for name, value in WEIGHTS.items()}])
    update = first.publish(1, WEIGHTS)
    assert buckets_checksum(received(update)) != update.checksum


def test_only_rank_0_offers(senders):
    _, second = senders(2)
    with pytest.raises(EnvironmentProblem, match="rank 1 does not offer weights"):
        second.publish(1, WEIGHTS)


def test_what_is_withdrawn_is_gone_and_the_next_offer_is_there(senders):
    first, second = senders(2)
    update = first.publish(1, WEIGHTS)
    for sender in (first, second):
        sender.withdraw()
    with pytest.raises(WeightSyncError, match="nothing is on offer"):
        received(update)
    assert buckets_checksum(received(first.publish(2, WEIGHTS))) == update.checksum


def test_a_rank_that_does_not_reach_the_first_is_lost(senders):
    first, second = senders(2, joined=False)
    first.close()
    with pytest.raises(RankLost, match="rank 1 of 2 does not reach rank 0"):
        second.join(first.address)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_tensors_that_pass_one_after_another_are_offered_as_if_all_were_held(senders, size):
    ranks = senders(size, [{}] * size)
    for sender in ranks:
        sender.collect(iter(WEIGHTS.items()), 28)
    update = ranks[0].publish_collected(2)
    assert (update.version, update.checksum) == (2, weights_checksum(WEIGHTS))
    assert [(t.name, t.shape, t.dtype) for t in update.tensors] == [
        ("a", (3, 2), "float32"),
        ("b", (2,), "bfloat16"),
    ]
    buckets = received(update)
    found = {name: value for bucket in buckets for name, value in views(bucket).items()}
    assert all(torch.equal(found[name], value) for name, value in WEIGHTS.items())


def test_ranks_keep_no_more_than_their_share_of_what_passes(senders):
    ranks = senders(2, [{}] * 2)
    for sender in ranks:
        sender.collect(iter(WEIGHTS.items()), 28)
    ranks[0].publish_collected(1)
    held = [[e.name for b in s._part._share._buckets for e in b.entries] for s in ranks]
    assert sorted(held) == [["a"], ["b"]]


def test_what_was_not_collected_is_not_offered(senders):
    first, *_ = senders(1)
    with pytest.raises(RunFailed, match="no weights were collected"):
        first.publish_collected(1)
    first.collect(WEIGHTS.items(), 28)
    first.publish_collected(1)
    with pytest.raises(RunFailed, match="since the last offer"):
        first.publish_collected(2)
