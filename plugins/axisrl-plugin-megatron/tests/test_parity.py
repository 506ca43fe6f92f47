"""Megatron's layers give transformers' numbers: log-probabilities, losses, gradient norms."""

import dataclasses

import numpy as np
import pytest
from safetensors.torch import load_file

from axisrl.ops.checksum import weights_checksum
from axisrl.testing.sequences import PullLoss, ValueLoss, packed, random_samples

pytestmark = pytest.mark.needs("megatron", "axisrl_local")

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MODELS = {
    "llama": {},
    "llama, untied": {"tie_word_embeddings": False},
    "llama, scaled positions": {"rope_parameters": LLAMA3},
    "qwen2": {},
    "qwen3": {},
    "qwen3, wide heads": {"head_dim": 16, "num_key_value_heads": 4},
}
MIXTURES = {
    "qwen3_moe": {},
    "qwen3_moe, a dense layer": {"mlp_only_layers": [0]},
    "qwen3_moe, weights that do not add up to 1": {"norm_topk_prob": False},
}
ALL = MODELS | MIXTURES


@pytest.fixture(params=ALL)
def spec(request, make_model):
    return make_model(request.param.partition(",")[0], **ALL[request.param])


@pytest.fixture(params=MODELS)
def dense(request, make_model):
    return make_model(request.param.partition(",")[0], **MODELS[request.param])


def returns(batch):
    given = np.full(batch.tokens, 1.5, np.float32)
    return dataclasses.replace(batch, columns={**batch.columns, "returns": given})


def test_logprobs_are_those_of_transformers(spec, make_trainer, make_local):
    batch = packed(random_samples(spec, 6, temperature=0.7))
    got, want = (make(spec).logprobs([batch])[0] for make in (make_trainer, make_local))
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_five_updates_are_those_of_the_local_trainer(spec, make_trainer, make_local):
    options = {"lr": 1e-3, "weight_decay": 0.1, "max_grad_norm": 0.5, "schedule": "cosine"}
    batches = [
        [packed(random_samples(spec, rows, seed=10 * step + rows)) for rows in (3, 1, 5)]
        for step in range(5)
    ]
    ends = []
    for make in (make_trainer, make_local):
        trainer = make(spec, **options)
        stats = [trainer.step(update, PullLoss()) for update in batches]
        numbers = [(s.metrics["loss/total"].value, s.grad_norm, s.learning_rate) for s in stats]
        ends.append((numbers, trainer.logprobs(batches[0])))
    (got, got_after), (want, want_after) = ends
    np.testing.assert_allclose(got, want, rtol=2e-4)
    for one, other in zip(got_after, want_after, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)


def test_a_value_model_is_that_of_the_local_trainer(make_model, make_trainer, make_local):
    spec = make_model("qwen2", head="value")
    batch = returns(packed(random_samples(spec, 4)))
    ends = []
    for make in (make_trainer, make_local):
        trainer = make(spec, lr=1e-3, seed=5)
        before = trainer.values([batch])[0]
        norms = [trainer.step([batch], ValueLoss()).grad_norm for _ in range(3)]
        ends.append((before, norms, trainer.values([batch])[0]))
    for got, want in zip(*ends, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5)


def test_the_weights_offered_have_the_names_of_files(spec, make_trainer):
    """Of a mixture, too, whose experts transformers holds in one tensor a layer."""
    given = load_file(spec.path / "model.safetensors")
    offered = make_trainer(spec).weight_update(1)
    assert offered.checksum == weights_checksum(given)
    assert {meta.name for meta in offered.tensors} == given.keys()


def test_the_weights_offered_are_those_of_the_local_trainer(dense, make_trainer, make_local):
    one, other = (make(dense).weight_update(1) for make in (make_trainer, make_local))
    assert one.checksum == other.checksum
    assert {meta.name for meta in one.tensors} == {meta.name for meta in other.tensors}


@pytest.mark.parametrize("head", ["lm", "value"])
def test_each_loads_the_folder_that_the_other_saved(
    head, make_model, make_trainer, make_local, tmp_path
):
    spec = make_model("qwen3", head=head)
    batch = packed(random_samples(spec, 3))
    for number, (make, read) in enumerate([(make_trainer, make_local), (make_local, make_trainer)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        writer = make(spec, lr=1e-2, seed=3)
        writer.step([returns(batch)], ValueLoss() if head == "value" else PullLoss())
        writer.save(folder)
        reader = read(dataclasses.replace(spec, path=folder / "model"), seed=4)
        got, want = (
            (trainer.values if head == "value" else trainer.logprobs)([batch])[0]
            for trainer in (reader, writer)
        )
        np.testing.assert_allclose(got, want, atol=2e-5)
