"""Tests of axisrl_local.checkpoint, through the trainer's save and load."""

import json

import numpy as np
import pytest
import torch

from axisrl.errors import CheckpointError
from axisrl.protocols.loss import LossResult
from axisrl.testing.sequences import PullLoss, packed, random_samples, trained
from axisrl_local.folder import MANIFEST

OPTIONS = {"schedule": "cosine", "warmup_steps": 2, "weight_decay": 0.1}


class NoisyLoss(PullLoss):
    """Draws from torch's global generator."""

    def __call__(self, batch):
        result = super().__call__(batch)
        return LossResult(per_token_N=result.per_token_N * torch.rand_like(result.per_token_N))


def batches(spec, count):
    return [[packed(random_samples(spec, 3, seed=seed))] for seed in range(count)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_six_steps_equal_three_a_restart_and_three(make_model, make_trainer, tmp_path, dtype):
    spec = make_model("qwen3", dtype=dtype)
    steps = batches(spec, 6)
    torch.manual_seed(11)
    whole = make_trainer(spec, **OPTIONS)
    want = [whole.step(step, NoisyLoss()) for step in steps]

    torch.manual_seed(11)
    first = make_trainer(spec, **OPTIONS)
    got = [first.step(step, NoisyLoss()) for step in steps[:3]]
    first.save(tmp_path)
    first.stop()
    torch.manual_seed(12)
    second = make_trainer(spec, **OPTIONS)
    second.load(tmp_path)
    got += [second.step(step, NoisyLoss()) for step in steps[3:]]

    assert got == want
    assert second.weight_update(6).checksum == whole.weight_update(6).checksum


def test_a_state_from_before_the_first_step_loads(make_model, make_trainer, tmp_path):
    spec = make_model("llama")
    step = batches(spec, 1)[0]
    trainer, other = make_trainer(spec), make_trainer(spec)
    trainer.save(tmp_path)
    other.load(tmp_path)
    assert other.step(step, PullLoss()) == trainer.step(step, PullLoss())


def test_a_load_undoes_the_steps_since_the_save(make_model, make_trainer, tmp_path):
    spec = make_model("llama")
    one, two = batches(spec, 2)
    trainer = make_trainer(spec)
    trainer.step(one, PullLoss())
    trainer.save(tmp_path)
    want = trainer.step(two, PullLoss())
    trainer.load(tmp_path)
    assert trainer.step(two, PullLoss()) == want


def test_nothing_is_pickled(make_model, make_trainer, tmp_path):
    make_trainer(make_model("llama")).save(tmp_path)
    suffixes = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".safetensors", ".jinja"}


def test_the_model_folder_loads_in_transformers_and_holds_the_tokenizer_files(
    make_model, make_trainer, tmp_path
):
    from transformers import AutoModelForCausalLM

    spec = make_model("qwen2")
    trainer = make_trainer(spec)
    trainer.step(batches(spec, 1)[0], PullLoss())
    trainer.save(tmp_path)
    sample = random_samples(spec, 1)[0]
    batch = packed([sample])
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    logp = model(torch.tensor(sample.ids.astype(np.int64))[None]).logits[0].log_softmax(-1)
    want = logp.gather(1, torch.tensor(sample.labels.astype(np.int64))[:, None])[:, 0]
    got = trained(batch, trainer.logprobs([batch])[0])
    np.testing.assert_allclose(got, want.detach().numpy()[sample.loss_mask], atol=1e-5)
    assert (tmp_path / "model" / "chat_template.jinja").read_text() == "{{ messages }}"


def test_the_model_folder_names_its_architecture_where_the_source_does_not(
    make_model, make_trainer, tmp_path
):
    spec = make_model("llama")
    config = json.loads((spec.path / "config.json").read_text())
    del config["architectures"]
    (spec.path / "config.json").write_text(json.dumps(config))
    make_trainer(spec).save(tmp_path)
    exported = json.loads((tmp_path / "model" / "config.json").read_text())
    assert exported["architectures"] == ["LlamaForCausalLM"]


def test_a_checkpoint_of_another_model_is_refused(make_model, make_trainer, tmp_path):
    make_trainer(make_model("llama")).save(tmp_path)
    with pytest.raises(CheckpointError, match="weights are missing"):
        make_trainer(make_model("qwen2")).load(tmp_path)


def test_a_checkpoint_of_another_size_is_refused(make_model, make_trainer, tmp_path):
    make_trainer(make_model("llama")).save(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        make_trainer(make_model("llama", intermediate_size=48)).load(tmp_path)


@pytest.mark.parametrize("name", ["trainer.json", "optimizer.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_damaged_checkpoint_is_named(make_model, make_trainer, tmp_path, name, damage):
    trainer = make_trainer(make_model("llama"))
    trainer.save(tmp_path)
    file = tmp_path / name
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        trainer.load(tmp_path)


def test_a_newer_format_is_refused(make_model, make_trainer, tmp_path):
    trainer = make_trainer(make_model("llama"))
    trainer.save(tmp_path)
    file = tmp_path / "trainer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 2}))
    with pytest.raises(CheckpointError, match="format 2"):
        trainer.load(tmp_path)


def test_a_frozen_model_resumes_with_the_weights_it_was_given(make_model, make_trainer, tmp_path):
    spec = make_model("qwen3", dtype="bfloat16")
    trainer, frozen = make_trainer(spec), make_trainer(spec, total_steps=None)
    trainer.step(batches(spec, 1)[0], PullLoss())
    frozen.update_weights(trainer.weight_update(1))
    frozen.save(tmp_path)
    resumed = make_trainer(spec, total_steps=None)
    resumed.load(tmp_path)
    weights = [model._model.weights() for model in (resumed, trainer)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])


def test_a_frozen_models_checkpoint_is_not_a_trained_ones(make_model, make_trainer, tmp_path):
    spec = make_model("llama")
    for name, steps in (("frozen", None), ("trained", 4)):
        (tmp_path / name).mkdir()
        make_trainer(spec, total_steps=steps).save(tmp_path / name)
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        make_trainer(spec, total_steps=None).load(tmp_path / "trained")
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        make_trainer(spec).load(tmp_path / "frozen")


def test_the_manifest_of_the_source_folder_is_not_copied(tiny, make_trainer, tmp_path):
    make_trainer(tiny).save(tmp_path)
    assert (tiny.path / MANIFEST).exists()
    assert not (tmp_path / "model" / MANIFEST).exists()
