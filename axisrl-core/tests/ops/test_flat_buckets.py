"""Tests of axisrl.ops.flat_buckets, and of the checksum that reads them."""

import json

import pytest
import torch

from axisrl.ops.checksum import buckets_checksum, weights_checksum
from axisrl.ops.flat_buckets import (
    ROW_BYTES,
    buffer_size,
    entries_from,
    fill,
    filled,
    layout,
    views,
)


def weights():
    generator = torch.Generator().manual_seed(1)
    return {
        "embed": torch.randn(300, 70, generator=generator),
        "norm": torch.ones(7, dtype=torch.bfloat16),
        "scale": torch.tensor(2.5),
        "turned": torch.randn(9, 5, generator=generator).T,
        "bytes": torch.arange(200_000, dtype=torch.int32).to(torch.uint8),
        "empty": torch.zeros(0, 4),
    }


def back(buckets):
    return {name: tensor for bucket in buckets for name, tensor in views(bucket).items()}


@pytest.mark.parametrize("size", [1, 100_000, 2**30])
def test_what_goes_in_comes_out_in_order_whatever_the_size(size):
    found = back(fill(weights(), size))
    assert list(found) == list(weights())
    assert all(torch.equal(found[name], tensor) for name, tensor in weights().items())
    assert all(found[name].dtype == tensor.dtype for name, tensor in weights().items())


def test_a_bucket_holds_as_much_as_fits():
    named = {str(n): torch.zeros(ROW_BYTES, dtype=torch.uint8) for n in range(5)}
    buckets = fill(named, 2 * ROW_BYTES)
    assert [len(bucket.entries) for bucket in buckets] == [2, 2, 1]
    assert all(bucket.buffer.numel() <= 2 * ROW_BYTES for bucket in buckets)


def test_a_tensor_larger_than_a_bucket_has_its_own():
    named = {"small": torch.zeros(8), "large": torch.zeros(ROW_BYTES), "last": torch.zeros(8)}
    buckets = fill(named, ROW_BYTES)
    assert [[entry.name for entry in bucket.entries] for bucket in buckets] == [
        ["small"],
        ["large"],
        ["last"],
    ]


def test_buckets_are_copies():
    named = weights()
    found = back(fill(named, 2**20))
    named["embed"].zero_()
    assert found["embed"].any()


def test_entries_survive_json():
    (bucket,) = fill(weights(), 2**30)
    assert entries_from(json.loads(json.dumps(bucket.entries))) == bucket.entries


@pytest.mark.parametrize("size", [1, 100_000, 2**30])
def test_the_checksum_of_buckets_is_that_of_the_weights(size):
    assert buckets_checksum(fill(weights(), size)) == weights_checksum(weights())


def test_a_change_in_a_bucket_shows_in_its_checksum():
    buckets = fill(weights(), 2**30)
    before = buckets_checksum(buckets)
    views(buckets[0])["turned"][2, 3] += 1
    assert buckets_checksum(buckets) != before


@pytest.mark.parametrize("size", [1, 100_000, 2**30])
def test_buckets_can_be_filled_one_by_one(size):
    whole, found = fill(weights(), size), layout(weights(), size)
    assert [bucket.entries for bucket in whole] == found
    for bucket, entries in zip(whole, found, strict=True):
        assert torch.equal(filled(weights(), entries).buffer, bucket.buffer)
        assert buffer_size(entries) == bucket.buffer.numel()
