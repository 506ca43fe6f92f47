"""Tests of axisrl_local.value_head, through the trainer that holds a value model."""

import dataclasses

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from axisrl.errors import EnvironmentProblem
from axisrl.testing.sequences import PullLoss, ValueLoss, packed, random_samples, trained
from axisrl_local.load import load_model
from axisrl_local.value_head import check_value_head, values_of

KINDS = ("llama", "qwen2", "qwen3")


@pytest.fixture
def make_value(make_model):
    def make(kind="llama", **changes):
        return dataclasses.replace(make_model(kind, **changes), head="value")

    return make


def with_returns(spec, value=1.0, seed=0):
    batch = packed(random_samples(spec, 3, seed=seed))
    columns = {**batch.columns, "returns": np.full(batch.tokens, value, np.float32)}
    return dataclasses.replace(batch, columns=columns)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_values_are_those_of_transformers_for_each_row_alone(make_value, make_trainer, kind):
    spec = make_value(kind)
    samples = random_samples(spec, 5, temperature=0.7)
    batch = packed(samples)
    got = trained(batch, make_trainer(spec).values([batch])[0])
    model = load_model(spec)
    rows = [
        model(torch.tensor(s.ids.astype(np.int64))[None]).logits[0, :, 0][torch.tensor(s.loss_mask)]
        for s in samples
    ]
    np.testing.assert_allclose(got, torch.cat(rows).detach().numpy(), atol=1e-5)


def test_gradients_of_a_value_loss_are_those_of_each_row_alone(make_value, make_trainer, tmp_path):
    spec = make_value()
    samples = random_samples(spec, 3)
    batch = with_returns(spec)
    trainer = make_trainer(spec, max_grad_norm=0)
    trainer.step([batch], ValueLoss())
    trainer.save(tmp_path)
    moments = load_file(tmp_path / "optimizer.safetensors")
    model = load_model(spec)
    values = [
        model(torch.tensor(s.ids.astype(np.int64))[None]).logits[0, :, 0][torch.tensor(s.loss_mask)]
        for s in samples
    ]
    (torch.cat(values) - 1).square().mean().backward()
    for name, parameter in model.named_parameters():
        got = 10 * moments[f"exp_avg/{name}"]
        torch.testing.assert_close(got, parameter.grad, atol=1e-5, rtol=1e-4, msg=name)


def test_the_head_is_small_has_no_bias_yet_and_gives_the_body_a_gradient(make_value):
    model = load_model(make_value(), seed=3)
    size = model.config.hidden_size
    assert model.score.weight.shape == (1, size) and model.score.bias.tolist() == [0.0]
    assert 0.5 / size < float(model.score.weight.detach().std()) < 2 / size
    values_of(model, torch.ones(2, size, requires_grad=True)).sum().backward()
    assert bool((model.score.weight.grad == 2).all()) and bool((model.score.weight != 0).all())


def test_the_head_is_the_seeds_whatever_this_process_drew(make_value, make_trainer):
    spec = make_value()
    batch = packed(random_samples(spec, 2))

    def values(seed):
        torch.rand(7)
        return make_trainer(spec, seed=seed).values([batch])[0].tolist()

    assert values(1) == values(1)
    assert values(1) != values(2)


def test_loading_a_value_model_leaves_torchs_generator_alone(make_value):
    before = torch.get_rng_state()
    load_model(make_value())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("tied", [True, False])
def test_a_value_model_has_no_output_layer_and_keeps_its_embedding(make_value, tied):
    model = load_model(make_value("qwen2", tie_word_embeddings=tied))
    names = [name for name, _ in model.named_parameters()]
    assert "model.embed_tokens.weight" in names
    assert not [name for name in names if "lm_head" in name]
    assert names[-2:] == ["score.weight", "score.bias"]


def test_the_head_computes_in_float32_on_a_bfloat16_body(make_value, make_trainer):
    spec = make_value(dtype="bfloat16")
    trainer = make_trainer(spec, lr=1e-3)
    batch = with_returns(spec)
    dtypes = {p.dtype for name, p in trainer._model.trained().items() if "score" in name}
    assert dtypes == {torch.float32}
    losses = [trainer.step([batch], ValueLoss()).metrics["loss/total"].value for _ in range(4)]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_four_steps_equal_two_a_restart_and_two(make_value, make_trainer, tmp_path, dtype):
    spec = make_value(dtype=dtype)
    steps = [[with_returns(spec, seed=seed)] for seed in range(4)]
    whole = make_trainer(spec)
    want = [whole.step(step, ValueLoss()) for step in steps]
    first = make_trainer(spec)
    got = [first.step(step, ValueLoss()) for step in steps[:2]]
    first.save(tmp_path)
    second = make_trainer(spec, seed=9)
    second.load(tmp_path)
    got += [second.step(step, ValueLoss()) for step in steps[2:]]
    assert got == want
    assert second.weight_update(4).checksum == whole.weight_update(4).checksum


def test_a_saved_value_model_loads_in_transformers_and_keeps_its_head(
    make_value, make_trainer, tmp_path
):
    from transformers import AutoModelForTokenClassification

    spec = make_value()
    trainer = make_trainer(spec)
    trainer.step([with_returns(spec)], ValueLoss())
    trainer.save(tmp_path)
    path = tmp_path / "model"
    model = AutoModelForTokenClassification.from_pretrained(path)
    assert torch.equal(model.score.weight, trainer._model.net.score.weight)
    again = make_trainer(dataclasses.replace(spec, path=path), seed=5)
    batch = packed(random_samples(spec, 2))
    np.testing.assert_array_equal(again.values([batch])[0], trainer.values([batch])[0])


def test_a_frozen_value_model_takes_a_trained_ones_weights(make_value, make_trainer):
    spec = make_value()
    trainer, frozen = make_trainer(spec), make_trainer(spec, total_steps=None, seed=4)
    batch = with_returns(spec)
    trainer.step([batch], ValueLoss())
    update = trainer.weight_update(1)
    assert {"score.weight", "score.bias"} <= {tensor.name for tensor in update.tensors}
    assert frozen.update_weights(update).checksum == update.checksum
    np.testing.assert_array_equal(frozen.values([batch])[0], trainer.values([batch])[0])


def test_a_model_that_cannot_carry_a_head_is_refused(make_value):
    model = load_model(make_value())
    model.score = torch.nn.Linear(32, 2)
    with pytest.raises(EnvironmentProblem, match="cannot carry a value head"):
        check_value_head(model, make_value())


def test_an_incomplete_body_is_refused_though_the_head_is_made(make_value, tmp_path):
    from safetensors.torch import save_file

    spec = make_value("qwen3")
    weights = load_file(spec.path / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((spec.path / "config.json").read_text())
    with pytest.raises(EnvironmentProblem, match=r"lacks 1 weights, first model\.norm\.weight"):
        load_model(dataclasses.replace(spec, path=tmp_path))


def test_the_engine_refuses_a_value_model(serve, tiny):
    async def play(engine):
        return None

    with pytest.raises(EnvironmentProblem, match="a value model samples nothing"):
        serve(play, dataclasses.replace(tiny, head="value"))


def test_an_untrained_policy_is_not_changed_by_a_value_model_beside_it(make_value, make_trainer):
    spec = make_value()
    policy = dataclasses.replace(spec, head="lm")
    alone, beside = make_trainer(policy), make_trainer(policy)
    value = make_trainer(spec)
    batch = with_returns(spec)
    value.step([batch], ValueLoss())
    assert alone.step([batch], PullLoss()) == beside.step([batch], PullLoss())
