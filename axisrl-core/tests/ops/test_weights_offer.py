"""Tests of axisrl.ops.weights_offer and weights_taken: which is chosen, and what is refused."""

import dataclasses

import pytest
import torch

from axisrl.config.training import TrainingOptions
from axisrl.errors import WeightSyncError
from axisrl.ops.checksum import weights_checksum
from axisrl.ops.weights_offer import weight_offer
from axisrl.ops.weights_taken import WeightTaker

WEIGHTS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(2)}
EXPECTED = {"a": ((2, 3), "torch.float32"), "b": ((2,), "torch.float32")}
CPU = torch.device("cpu")


@pytest.fixture(params=["shared_memory", "disk", "nccl"])
def update(request, tmp_path):
    config = TrainingOptions(transport=request.param, bucket_mib=1)
    offer = weight_offer(config, tmp_path, "127.0.0.1", None, lambda: WEIGHTS)
    yield offer.publish(3, WEIGHTS)
    offer.close()


def test_what_is_offered_arrives_by_every_transport(update):
    taken = WeightTaker("test").take(update, CPU, EXPECTED)
    assert weights_checksum(taken) == update.checksum == weights_checksum(WEIGHTS)


def test_weights_that_do_not_fit_are_refused_before_they_travel(update):
    with pytest.raises(WeightSyncError, match="has unexpected b"):
        WeightTaker("test").take(update, CPU, {"a": EXPECTED["a"]})
    other = dataclasses.replace(update, tensors=update.tensors[:1])
    with pytest.raises(WeightSyncError, match="lacks b"):
        WeightTaker("test").take(other, CPU, EXPECTED)
