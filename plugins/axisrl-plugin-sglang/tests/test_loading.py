"""Tests of axisrl_sglang.payload and axisrl_sglang.loading: from one process to SGLang's rank."""

import json
import pickle

import pytest
import torch
from safetensors.torch import save_file

from axisrl.ops.checksum import weights_checksum
from axisrl_sglang.loading import load
from axisrl_sglang.messages import Report, Weights
from axisrl_sglang.payload import payload


class Model(torch.nn.Linear):
    """Raises when it is given a bias."""

    def load_weights(self, weights):
        for name, tensor in weights:
            self.get_parameter(name).data.copy_(tensor)


@pytest.fixture
def model():
    return Model(3, 2, bias=False)


@pytest.fixture
def send(model, tmp_path):
    """``send(tensors, **changes)`` loads them by the file; the report."""

    def sent(tensors, **changes):
        location = str(tmp_path / "new.safetensors")
        save_file(tensors, location)
        weights = Weights(1, "disk", location, weights_checksum(tensors), True)
        load(model, pickle.loads(payload(weights._replace(**changes), tmp_path / "1.json")))
        (report,) = json.loads((tmp_path / "1.json").read_text())
        return Report(**report)

    return sent


def test_what_was_sent_is_served_and_its_checksum_told(model, send):
    weight = torch.randn(2, 3)
    assert send({"weight": weight}) == Report(weights_checksum({"weight": weight}))
    assert torch.equal(model.weight, weight)


def test_what_is_not_what_was_announced_changes_nothing(model, send):
    before = model.weight.clone()
    report = send({"weight": torch.randn(2, 3)}, checksum="0" * 32)
    assert (report.problem, report.changed) == ("what arrived is not what was sent", False)
    assert torch.equal(model.weight, before)


def test_a_load_that_breaks_is_told_as_half_done(send):
    report = send({"weight": torch.randn(2, 3), "bias": torch.randn(2)})
    assert report.changed
    assert report.problem.startswith("AttributeError: ")


def test_a_file_that_is_not_there_is_told(send, tmp_path):
    report = send({"weight": torch.randn(2, 3)}, location=str(tmp_path / "gone.safetensors"))
    assert report.problem and not report.changed


def test_unverified_weights_are_loaded_as_they_are(model, send):
    report = send({"weight": torch.full((2, 3), 7.0)}, verify=False)
    assert report.problem == ""
    assert (model.weight == 7).all()
