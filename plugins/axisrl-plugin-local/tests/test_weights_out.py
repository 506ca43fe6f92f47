"""Tests of axisrl.ops.weights_out."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from axisrl.ops.checksum import weights_checksum
from axisrl.ops.weights_out import WeightPublisher
from axisrl.testing.sequences import PullLoss, packed, random_samples
from axisrl.types import AdapterMeta

WEIGHTS = {"a": torch.arange(6.0).view(2, 3).T, "b": torch.ones(2, dtype=torch.bfloat16)}


@pytest.fixture(params=["shared_memory", "disk"])
def publisher(request, tmp_path):
    publisher = WeightPublisher(tmp_path, request.param)
    yield publisher
    publisher.close()


def test_an_update_names_a_file_with_exactly_the_weights(publisher):
    update = publisher.publish(3, WEIGHTS)
    held = load_file(update.location)
    assert held.keys() == WEIGHTS.keys()
    assert all(torch.equal(held[name], WEIGHTS[name]) for name in WEIGHTS)
    assert update.version == 3
    assert update.checksum == weights_checksum(held)
    assert [(t.name, t.shape, t.dtype) for t in update.tensors] == [
        ("a", (3, 2), "float32"),
        ("b", (2,), "bfloat16"),
    ]


def test_an_adapter_travels_with_its_tensors(publisher):
    adapter = AdapterMeta(rank=2, scale=0.5, targets=("m",))
    assert publisher.publish(1, WEIGHTS, adapter).adapter == adapter
    assert publisher.publish(2, WEIGHTS).adapter is None


def test_the_newest_two_versions_stay(publisher):
    files = [Path(publisher.publish(version, WEIGHTS).location) for version in range(4)]
    assert [file.exists() for file in files] == [False, False, True, True]


def test_no_unfinished_file_is_left(publisher):
    folder = Path(publisher.publish(1, WEIGHTS).location).parent
    assert not list(folder.glob("*.partial"))


def test_a_version_can_be_offered_again(publisher):
    publisher.publish(1, WEIGHTS)
    update = publisher.publish(1, {"a": torch.zeros(1)})
    assert load_file(update.location)["a"].tolist() == [0.0]


def test_close_removes_every_file_and_is_idempotent(publisher):
    files = [Path(publisher.publish(version, WEIGHTS).location) for version in range(2)]
    publisher.close()
    publisher.close()
    assert not any(file.exists() for file in files)


def test_two_runs_never_share_a_file(tmp_path):
    publishers = [WeightPublisher(tmp_path / name, "shared_memory") for name in ("a", "b")]
    locations = {publisher.publish(1, WEIGHTS).location for publisher in publishers}
    for publisher in publishers:
        publisher.close()
    assert len(locations) == 2


def test_disk_is_the_run_folder(tmp_path):
    update = WeightPublisher(tmp_path, "disk").publish(1, WEIGHTS)
    assert Path(update.location).is_relative_to(tmp_path / "weights")


def test_what_a_killed_process_offered_is_removed_by_the_next_and_a_living_ones_stays(tmp_path):
    living = WeightPublisher(tmp_path / "living", "shared_memory")
    mine = Path(living.publish(1, WEIGHTS).location)
    code = (
        "import os, pathlib, sys, torch\n"
        "from axisrl.ops.weights_out import WeightPublisher\n"
        "publisher = WeightPublisher(pathlib.Path(sys.argv[1]), 'shared_memory')\n"
        "print(publisher.publish(1, {'a': torch.ones(3)}).location, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "killed")], capture_output=True, text=True
    )
    orphan = Path(killed.stdout.strip())
    assert orphan.exists()
    WeightPublisher(tmp_path / "next", "shared_memory").close()
    assert not orphan.parent.exists()
    assert mine.exists()
    living.close()


def test_a_tied_weight_is_written_once(make_model, make_trainer):
    update = make_trainer(make_model("llama")).weight_update(1)
    names = {tensor.name for tensor in update.tensors}
    assert "model.embed_tokens.weight" in names and "lm_head.weight" not in names
    assert names == load_file(update.location).keys()


def test_an_offer_holds_the_weights_of_its_moment(make_model, make_trainer):
    spec = make_model("llama")
    trainer = make_trainer(spec)
    before = trainer.weight_update(1)
    trainer.step([packed(random_samples(spec, 2))], PullLoss())
    after = trainer.weight_update(2)
    assert weights_checksum(load_file(before.location)) == before.checksum != after.checksum


def test_stopping_the_trainer_removes_what_it_offered(make_model, make_trainer):
    trainer = make_trainer(make_model("llama"))
    file = Path(trainer.weight_update(1).location)
    trainer.stop()
    trainer.stop()
    assert not file.exists()
