"""Tests of axisrl_local.lora, mostly through the trainer that trains an adapter."""

import dataclasses
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from axisrl.config.lora import LoraOptions
from axisrl.errors import CheckpointError, ConfigError, EnvironmentProblem
from axisrl.protocols.loss import LossResult
from axisrl.testing.sequences import PullLoss, ValueLoss, packed, random_samples, trained
from axisrl_local.load import load_model
from axisrl_local.lora import add_adapter, base_name

pytest.importorskip("peft", reason="the extra lora is not installed")

KINDS = ("llama", "qwen2", "qwen3")
LORA = LoraOptions(rank=4, alpha=8)
LAYER = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class NoisyLoss(PullLoss):
    """Draws from torch's global generator."""

    def __call__(self, batch):
        result = super().__call__(batch)
        return LossResult(per_token_N=result.per_token_N * torch.rand_like(result.per_token_N))


def batch_of(spec, seed=0, count=3):
    batch = packed(random_samples(spec, count, seed=seed))
    columns = {**batch.columns, "returns": np.ones(batch.tokens, np.float32)}
    return dataclasses.replace(batch, columns=columns)


def value(spec):
    return dataclasses.replace(spec, head="value")


def base_weights(spec):
    return {name: p.detach() for name, p in load_model(spec).named_parameters()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_adapter_is_the_base_model(make_model, make_trainer, kind):
    spec = make_model(kind)
    batch = batch_of(spec)
    want = make_trainer(spec).logprobs([batch])[0]
    got = make_trainer(spec, lora=LORA).logprobs([batch])[0]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", KINDS)
def test_all_linear_is_attention_and_mlp_and_nothing_else(make_model, make_trainer, kind):
    trainer = make_trainer(make_model(kind), lora=LORA)
    targets = trainer._model.adapter.meta.targets
    assert [target.rpartition(".")[2] for target in targets] == list(LAYER) * 2
    assert set(trainer._model.trained()) == {
        f"{target}.lora_{factor}.weight" for target in targets for factor in "AB"
    }


def test_targets_may_be_named(make_model, make_trainer):
    options = LoraOptions(rank=2, alpha=3, targets=("q_proj", "mlp.up_proj"))
    meta = make_trainer(make_model("llama"), lora=options)._model.adapter.meta
    assert (meta.rank, meta.scale) == (2, 1.5)
    assert [target.rpartition(".")[2] for target in meta.targets] == ["q_proj", "up_proj"] * 2


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens", "proj", "q_pro"])
def test_a_target_the_body_lacks_is_named_with_those_it_has(make_model, make_trainer, target):
    with pytest.raises(ConfigError, match=f"no linear layer '{target}'") as caught:
        make_trainer(make_model("llama"), lora=LoraOptions(targets=(target,)))
    assert "down_proj, gate_proj, k_proj" in caught.value.fix


@pytest.mark.parametrize("update", ["merged", "adapter"])
def test_steps_change_the_adapter_and_leave_the_base_bit_for_bit(make_model, make_trainer, update):
    spec = make_model("qwen2")
    trainer = make_trainer(spec, lora=dataclasses.replace(LORA, update=update))
    batch = batch_of(spec)
    losses = []
    for version in range(4):
        losses.append(trainer.step([batch], PullLoss()).metrics["loss/total"].value)
        trainer.weight_update(version)
    assert losses == sorted(losses, reverse=True)
    held = {base_name(name): p for name, p in trainer._model.net.named_parameters()}
    assert all(torch.equal(held[name], weight) for name, weight in base_weights(spec).items())


def test_the_base_has_no_gradient_and_no_optimizer_state(make_model, make_trainer, tmp_path):
    spec = make_model("llama", dtype="bfloat16")
    trainer = make_trainer(spec, lora=LORA)
    trainer.step([batch_of(spec)], PullLoss())
    trainer.save(tmp_path)
    kept = load_file(tmp_path / "optimizer.safetensors")
    names = {name.partition("/")[2] for name in kept if not name.startswith("rng/")}
    assert names == set(trainer._model.trained())
    base = [p for n, p in trainer._model.net.named_parameters() if "lora_" not in n]
    assert all(p.grad is None and not p.requires_grad for p in base)


def test_gradients_of_an_adapter_are_those_of_the_merged_weight(make_model, make_trainer, tmp_path):
    """With W' = W + s B A: dL/dB = s dL/dW' A^T."""
    spec = make_model("llama")
    batch = batch_of(spec)
    whole = make_trainer(spec, max_grad_norm=0)
    adapted = make_trainer(spec, max_grad_norm=0, lora=LORA)
    a = {n: p.detach().clone() for n, p in adapted._model.adapter.tensors().items()}
    moments = []
    for name, trainer in (("whole", whole), ("adapted", adapted)):
        trainer.step([batch], PullLoss())
        (tmp_path / name).mkdir()
        trainer.save(tmp_path / name)
        moments.append(load_file(tmp_path / name / "optimizer.safetensors"))
    for target in adapted._model.adapter.meta.targets:
        got = moments[1][f"exp_avg/{target}.lora_B.weight"]
        want = 2.0 * moments[0][f"exp_avg/{target}.weight"] @ a[f"{target}.lora_A.weight"].T
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-4, msg=target)


def test_the_adapter_is_the_seeds_whatever_this_process_drew(make_model, make_trainer):
    def drawn(seed):
        torch.rand(5)
        update = LoraOptions(rank=4, update="adapter")
        return make_trainer(make_model("llama"), lora=update, seed=seed).weight_update(1).checksum

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_merged_updates_have_base_names_and_adapter_updates_the_adapters(make_model, make_trainer):
    spec = make_model("qwen2")
    merged = make_trainer(spec, lora=LORA).weight_update(1)
    assert merged.adapter is None
    assert {tensor.name for tensor in merged.tensors} == set(base_weights(spec))
    options = dataclasses.replace(LORA, update="adapter")
    trainer = make_trainer(spec, lora=options)
    update = trainer.weight_update(1)
    assert update.adapter == trainer._model.adapter.meta
    assert {tensor.name for tensor in update.tensors} == set(trainer._model.trained())
    sizes = [sum(np.prod(tensor.shape) for tensor in u.tensors) for u in (update, merged)]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("options", [{}, {"recompute": True}], ids=["kept", "recomputed"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_four_steps_equal_two_a_restart_and_two(
    make_model, make_trainer, tmp_path, dtype, dropout, options
):
    spec = make_model("qwen3", dtype=dtype)
    options = {"lora": dataclasses.replace(LORA, dropout=dropout), "schedule": "cosine", **options}
    steps = [[batch_of(spec, seed=seed)] for seed in range(4)]
    whole = make_trainer(spec, **options)
    want = [whole.step(step, NoisyLoss()) for step in steps]
    first = make_trainer(spec, **options)
    got = [first.step(step, NoisyLoss()) for step in steps[:2]]
    first.save(tmp_path)
    second = make_trainer(spec, seed=0, **options)
    second.load(tmp_path)
    got += [second.step(step, NoisyLoss()) for step in steps[2:]]
    assert got == want
    assert second.weight_update(4).checksum == whole.weight_update(4).checksum


def test_the_exported_model_is_merged_and_loads_in_transformers(make_model, make_trainer, tmp_path):
    spec = make_model("qwen2")
    trainer = make_trainer(spec, lora=LORA)
    for seed in range(3):
        trainer.step([batch_of(spec, seed=seed)], PullLoss())
    trainer.save(tmp_path)
    batch = batch_of(spec)
    exported = make_trainer(dataclasses.replace(spec, path=tmp_path / "model"))
    want, got = trainer.logprobs([batch])[0], exported.logprobs([batch])[0]
    np.testing.assert_allclose(got, want, atol=1e-5)
    base = make_trainer(spec).logprobs([batch])[0]
    assert np.abs(base - want).max() > 1e-2
    names = load_file(tmp_path / "model" / "model.safetensors").keys()
    assert names == base_weights(spec).keys()


def test_a_checkpoint_of_another_scale_or_without_an_adapter_is_refused(
    make_model, make_trainer, tmp_path
):
    spec = make_model("llama")
    for name, options in (("adapter", {"lora": LORA}), ("whole", {})):
        (tmp_path / name).mkdir()
        make_trainer(spec, **options).save(tmp_path / name)
    other = make_trainer(spec, lora=dataclasses.replace(LORA, alpha=16))
    with pytest.raises(CheckpointError, match=r"scale 2\.0, this trainer an adapter of scale 4"):
        other.load(tmp_path / "adapter")
    with pytest.raises(CheckpointError, match="it has no adapter, this trainer an adapter"):
        make_trainer(spec, lora=LORA).load(tmp_path / "whole")
    with pytest.raises(CheckpointError, match="this trainer no adapter"):
        make_trainer(spec).load(tmp_path / "adapter")


def test_dropout_acts_on_gradient_passes_alone(make_model, make_trainer):
    spec = make_model("llama")
    batch = batch_of(spec)
    trainer = make_trainer(spec, lora=dataclasses.replace(LORA, dropout=0.5), recompute=True)
    trainer.step([batch], PullLoss())
    before = trainer.logprobs([batch])[0]
    np.testing.assert_array_equal(trainer.logprobs([batch])[0], before)
    loss = trainer.step([batch], PullLoss()).metrics["loss/total"].value
    assert abs(loss + float(trained(batch, before).mean())) > 1e-3


def test_a_value_model_trains_its_adapter_and_its_head(make_model, make_trainer, tmp_path):
    spec = value(make_model("llama"))
    options = {"lora": dataclasses.replace(LORA, update="adapter")}
    trainer, batch = make_trainer(spec, **options), batch_of(spec)
    assert {"score.weight", "score.bias"} <= set(trainer._model.trained())
    before = trainer.values([batch])[0]
    for _ in range(3):
        trainer.step([batch], ValueLoss())
    after = trainer.values([batch])[0]
    assert np.abs(trained(batch, after) - 1).mean() < np.abs(trained(batch, before) - 1).mean()
    trainer.save(tmp_path)
    again = make_trainer(spec, seed=3, **options)
    again.load(tmp_path)
    np.testing.assert_array_equal(again.values([batch])[0], after)
    update = trainer.weight_update(1)
    assert update.adapter is None and "score.weight" in {t.name for t in update.tensors}


def test_a_checkpoint_of_an_adapter_depends_on_nothing_pickled(make_model, make_trainer, tmp_path):
    make_trainer(make_model("llama"), lora=LORA).save(tmp_path)
    suffixes = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".safetensors", ".jinja"}


def test_without_peft_the_extra_is_named(make_model, monkeypatch):
    model = load_model(make_model("llama"))
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(EnvironmentProblem, match="needs peft") as caught:
        add_adapter(model, LORA)
    assert "axisrl-plugin-local[lora]" in caught.value.fix


def test_base_names_are_hugging_faces():
    layer = "model.layers.0.mlp.up_proj"
    assert base_name(f"{layer}.base_layer.weight") == f"{layer}.weight"
    assert base_name(f"{layer}.lora_A.default.weight") == f"{layer}.lora_A.weight"
    assert base_name("model.norm.weight") == "model.norm.weight"
