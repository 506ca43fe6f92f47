"""Tests of axisrl_megatron.lora, mostly through the trainer that trains an adapter."""

import dataclasses
import importlib

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from axisrl.config.lora import LoraOptions
from axisrl.errors import CheckpointError, ConfigError
from axisrl.testing.sequences import PullLoss, ValueLoss, packed, random_samples, trained

pytestmark = pytest.mark.needs("megatron", "axisrl_local")

ranks = importlib.import_module(f"{__name__.rpartition('.')[0]}.test_ranks")
KINDS = ("llama", "qwen2", "qwen3")
NAMED = (("q_proj", "mlp.up_proj"), ("k_proj", "o_proj"))
LEARNED = [
    *((kind, targets) for kind in KINDS for targets in ("all-linear", *NAMED)),
    ("qwen3_moe", NAMED[1]),  # peft wants other targets for a mixture's dense layers
]
LORA = LoraOptions(rank=4, alpha=8, update="adapter")
LAYER = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PEFT = "base_model.model."


def batch_of(spec, seed=0):
    batch = packed(random_samples(spec, 3, seed=seed))
    columns = {**batch.columns, "returns": np.ones(batch.tokens, np.float32)}
    return dataclasses.replace(batch, columns=columns)


def factors(trainer):
    """Copies of the adapter's tensors."""
    return {name: value.clone() for name, value in trainer._held().factors().items()}


def give(trainer, tensors):
    """Let the trainer hold that adapter."""
    missing = trainer._held()._weights.load(tensors.__getitem__, trainer._held().trained())
    assert not missing


def steps(trainer, spec, count=3):
    return [trainer.step([batch_of(spec, seed)], PullLoss()).grad_norm for seed in range(count)]


@pytest.fixture
def local_as(make_local):
    """(trainer, spec) -> a local trainer of the same adapter."""
    pytest.importorskip("peft", reason="the extra lora of axisrl-plugin-local is not installed")

    def make(trainer, spec, **options):
        local = make_local(spec, **options)
        tensors = factors(trainer)
        with torch.no_grad():
            for name, value in local._model.adapter.tensors().items():
                value.copy_(tensors[name])
        return local

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_adapter_is_the_base_model(make_model, make_trainer, kind):
    spec = make_model(kind)
    batch = batch_of(spec)
    want = make_trainer(spec).logprobs([batch])[0]
    got = make_trainer(spec, lora=LORA).logprobs([batch])[0]
    np.testing.assert_allclose(got, want, atol=2e-6)  # Megatron multiplies with frozen weights anew


@pytest.mark.parametrize(("kind", "targets"), LEARNED)
def test_it_learns_what_the_local_trainer_learns(make_model, make_trainer, local_as, kind, targets):
    spec = make_model(kind, **({"mlp_only_layers": [0]} if kind == "qwen3_moe" else {}))
    options = {"lr": 3e-3, "lora": dataclasses.replace(LORA, targets=targets)}
    trainer = make_trainer(spec, **options)
    local = local_as(trainer, spec, **options)
    assert trainer._held().adapter.meta == local._model.adapter.meta
    np.testing.assert_allclose(steps(trainer, spec), steps(local, spec), rtol=1e-4)
    batch = batch_of(spec, 9)
    got, want = (each.logprobs([batch])[0] for each in (trainer, local))
    np.testing.assert_allclose(got, want, atol=1e-4)
    for name, value in local._model.adapter.tensors().items():
        torch.testing.assert_close(factors(trainer)[name], value.detach(), rtol=1e-3, atol=1e-4)
    whole, others = trainer._held().weights(), local._model.weights()
    assert whole.keys() == others.keys() or kind == "qwen3_moe"  # experts in one in transformers
    for name in whole.keys() & others.keys():
        torch.testing.assert_close(whole[name], others[name], rtol=1e-3, atol=1e-4)


def test_layers_side_by_side_get_their_own_adapters(make_model, make_trainer):
    """An adapter's live output is that of the weight it is merged into."""
    spec = make_model("qwen2", num_key_value_heads=4)
    trainer, whole = make_trainer(spec, lora=LORA), make_trainer(spec)
    generator = torch.Generator().manual_seed(5)
    drawn = {n: torch.randn(v.shape, generator=generator) / 9 for n, v in factors(trainer).items()}
    give(trainer, drawn)
    merged = trainer._held().weights()
    whole._held().load(merged.__getitem__)
    batch = batch_of(spec)
    got, want = (each.logprobs([batch])[0] for each in (trainer, whole))
    np.testing.assert_allclose(got, want, atol=1e-4)
    base = load_file(spec.path / "model.safetensors")
    for target in trainer._held().adapter.meta.targets:
        name = f"{target}.weight"
        added = 2.0 * drawn[f"{target}.lora_B.weight"] @ drawn[f"{target}.lora_A.weight"]
        torch.testing.assert_close(merged[name], base[name] + added, rtol=1e-4, atol=1e-5)


def test_a_mixtures_experts_get_none(make_model, make_trainer):
    trainer = make_trainer(make_model("qwen3_moe", mlp_only_layers=[0]), lora=LORA)
    targets = trainer._held().adapter.meta.targets
    assert [target.rpartition(".")[2] for target in targets] == [*LAYER, *LAYER[:4]]
    assert {name for name in trainer._held().factors()} == trainer._held().adapter.names


def test_all_linear_is_attention_and_mlp_in_order(make_model, make_trainer):
    trainer = make_trainer(make_model(), lora=LORA)
    meta = trainer._held().adapter.meta
    assert (meta.rank, meta.scale) == (4, 2.0)
    assert [target.rpartition(".")[2] for target in meta.targets] == list(LAYER) * 2
    assert len(trainer._held().trained()) == 2 * len(meta.targets)


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens", "proj", "q_pro"])
def test_a_target_the_body_lacks_is_named_with_those_it_has(make_model, make_trainer, target):
    with pytest.raises(ConfigError, match=f"no linear layer '{target}'") as caught:
        make_trainer(make_model(), lora=LoraOptions(targets=(target,)))
    assert "down_proj, gate_proj, k_proj" in caught.value.fix


def test_steps_leave_the_base_bit_for_bit_and_without_state(make_model, make_trainer):
    spec = make_model("qwen2", dtype="bfloat16")
    trainer = make_trainer(spec, lora=LORA, lr=1e-2)
    steps(trainer, spec)
    held = trainer._held()
    base = {
        name: value.bfloat16() for name, value in load_file(spec.path / "model.safetensors").items()
    }
    named = dict(held._weights.named())
    assert all(torch.equal(named[name], value) for name, value in base.items())
    frozen = [p for n, p in held.net.named_parameters() if ".adapters." not in n]
    assert all(p.grad is None and not p.requires_grad for p in frozen)
    kept = {name.partition("/")[2] for name in trainer._training.optimizer.tensors()}
    assert kept == held.trained().keys()


def test_the_adapter_is_the_seeds_and_its_layers_differ(make_model, make_trainer):
    spec = make_model()
    first, same, other = (factors(make_trainer(spec, lora=LORA, seed=s)) for s in (1, 1, 2))
    assert all(torch.equal(value, same[name]) for name, value in first.items())
    a = [name for name in first if ".lora_A." in name]
    assert not any(torch.equal(first[name], other[name]) for name in a)
    assert len({first[name].flatten()[0].item() for name in a}) == len(a)
    assert all(value.abs().max() <= 1 / np.sqrt(value.shape[1]) for value in map(first.get, a))
    assert not any(first[name].any() for name in first if ".lora_B." in name)


def test_engines_are_offered_the_adapter_alone_or_merged_weights(make_model, make_trainer):
    spec = make_model("qwen2")
    trainer = make_trainer(spec, lora=LORA)
    update = trainer.weight_update(1)
    assert update.adapter == trainer._held().adapter.meta
    assert {tensor.name for tensor in update.tensors} == trainer._held().adapter.names
    merged = make_trainer(spec, lora=dataclasses.replace(LORA, update="merged")).weight_update(1)
    assert merged.adapter is None
    names = load_file(spec.path / "model.safetensors").keys()
    assert {tensor.name for tensor in merged.tensors} == names


def test_the_local_trainers_reference_takes_the_adapter(make_model, make_trainer, make_local):
    spec = make_model("qwen3")
    trainer, frozen = make_trainer(spec, lora=LORA, lr=1e-2), make_local(spec, total_steps=None)
    steps(trainer, spec)
    frozen.update_weights(trainer.weight_update(1))
    batch = batch_of(spec)
    got, want = (each.logprobs([batch])[0] for each in (frozen, trainer))
    np.testing.assert_allclose(got, want, atol=1e-4)


@pytest.mark.parametrize("targets", ["all-linear", ("model.layers.1.mlp.down_proj", "q_proj")])
def test_a_checkpoint_has_a_folder_that_peft_loads(make_model, make_trainer, tmp_path, targets):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    from transformers import AutoModelForCausalLM

    spec = make_model("qwen3")
    trainer = make_trainer(spec, lora=dataclasses.replace(LORA, targets=targets), lr=1e-2)
    steps(trainer, spec)
    trainer.save(tmp_path)
    base = AutoModelForCausalLM.from_pretrained(spec.path)
    model = peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
    given = {n.replace(".default.", "."): p for n, p in model.named_parameters() if "lora_" in n}
    written = {f"{PEFT}{name}": value for name, value in factors(trainer).items()}
    assert given.keys() == written.keys()
    assert all(torch.equal(given[name], value) for name, value in written.items())
    merged = load_file(tmp_path / "model" / "model.safetensors")
    for name, value in model.merge_and_unload().named_parameters():
        torch.testing.assert_close(value.detach(), merged[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_four_steps_equal_two_a_restart_and_two(make_model, make_trainer, tmp_path, dtype):
    spec = make_model("qwen3", dtype=dtype)
    options = {"lora": LORA, "schedule": "cosine"}
    whole, first, second = (make_trainer(spec, seed=s, **options) for s in (0, 0, 4))
    want = steps(whole, spec, 4)
    got = steps(first, spec, 2)
    first.save(tmp_path)
    second.load(tmp_path)
    got += [second.step([batch_of(spec, seed)], PullLoss()).grad_norm for seed in (2, 3)]
    assert got == want
    assert second.weight_update(4).checksum == whole.weight_update(4).checksum


def test_a_value_model_trains_its_adapter_and_its_head(make_model, make_trainer, tmp_path):
    spec = make_model(head="value")
    trainer, batch = make_trainer(spec, lora=LORA), batch_of(spec)
    assert {"score.weight", "score.bias"} <= trainer._held().trained().keys()
    before = trainer.values([batch])[0]
    for _ in range(3):
        trainer.step([batch], ValueLoss())
    after = trainer.values([batch])[0]
    assert np.abs(trained(batch, after) - 1).mean() < np.abs(trained(batch, before) - 1).mean()
    trainer.save(tmp_path)
    again = make_trainer(spec, seed=3, lora=LORA)
    again.load(tmp_path)
    np.testing.assert_array_equal(again.values([batch])[0], after)
    assert trainer.weight_update(1).adapter is None


def test_a_frozen_model_has_no_adapter(make_model, make_trainer):
    frozen = make_trainer(make_model(), total_steps=None, lora=LORA)
    assert frozen._held().adapter is None


def test_a_checkpoint_of_another_scale_or_without_an_adapter_is_refused(
    make_model, make_trainer, tmp_path
):
    spec = make_model()
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


def test_dropout_is_refused():
    from axisrl_megatron.config import MegatronConfig

    with pytest.raises(ValueError, match=r"lora\.dropout 0\.1 must be 0"):
        MegatronConfig(lora=LoraOptions(dropout=0.1))


@pytest.mark.parametrize("head", ["lm", "value"])
@pytest.mark.parametrize("layout", ["tensor", "context", "sequence"])
def test_ranks_train_the_adapter_of_one(pair, make_model, tmp_path, layout, head):
    """And one goes on from what they saved, and they themselves."""
    spec = make_model("qwen2", head=head, **ranks.SIZES)
    given = {"lora": dataclasses.replace(LORA, rank=3), "lr": 1e-2}
    job = ranks.job_of(spec, tmp_path, ranks.ALL[layout], common=given)
    ranks.as_one(pair, job)
    saved = tmp_path / "saved"
    saved.mkdir()
    pair.learn(job | {"steps": 1, "save": saved})
    whole = ranks.learn(0, 1, job)
    again = job | {"steps": 2, "load": saved}
    for got in (ranks.learn(0, 1, again), *pair.learn(again)):
        np.testing.assert_allclose(got[3], whole[3][1:], rtol=2e-4)


@pytest.mark.parametrize("transport", ["shared_memory", "nccl"])
def test_ranks_offer_the_adapter_of_one(pair, make_model, tmp_path, transport):
    spec = make_model("qwen3", **ranks.SIZES)
    job = ranks.job_of(spec, tmp_path, ranks.TENSOR, common={"lora": LORA}, receives=True)
    job["options"] = ranks.TENSOR | {"transport": transport}
    offered, taken, _ = pair.learn(job)[0]
    assert offered == taken
