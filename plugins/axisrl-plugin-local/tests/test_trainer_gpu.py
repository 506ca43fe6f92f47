"""The trainer on a CUDA device: equal to the CPU in float32, learning in bfloat16."""

import dataclasses
import inspect

import numpy as np
import pytest
import torch

from axisrl.config.lora import LoraOptions
from axisrl.testing.sequences import PullLoss, ValueLoss, packed, random_samples, trained

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

KINDS = ("llama", "qwen2", "qwen3")
HALF_SIZES = {"hidden_size": 128, "head_dim": 32, "intermediate_size": 128}


def on(spec, device):
    return dataclasses.replace(spec, device=device)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_on_cuda_equals_the_cpu(make_model, make_trainer, kind):
    spec = make_model(kind)
    batch = packed(random_samples(spec, 6, temperature=0.7))
    ends = []
    for device in ("cpu", "cuda"):
        trainer = make_trainer(on(spec, device), lr=1e-3)
        before = trainer.logprobs([batch])[0]
        norm = trainer.step([batch], PullLoss()).grad_norm
        ends.append((before, norm, trainer.logprobs([batch])[0]))
    for cpu, cuda in zip(*ends, strict=True):
        np.testing.assert_allclose(cuda, cpu, atol=1e-4, rtol=1e-4)


def test_the_checksum_is_the_same_on_both_devices(make_model, make_trainer):
    spec = make_model("llama")
    sums = {make_trainer(on(spec, d)).weight_update(1).checksum for d in ("cpu", "cuda")}
    assert len(sums) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_rows_do_not_see_each_other(make_model, make_trainer, kind):
    spec = on(make_model(kind, dtype="bfloat16", **HALF_SIZES), "cuda")
    samples = random_samples(spec, 6)
    trainer = make_trainer(spec)
    whole = packed(samples)
    together = trained(whole, trainer.logprobs([whole])[0])
    alone = [packed([sample]) for sample in samples]
    apart = [trained(b, x) for b, x in zip(alone, trainer.logprobs(alone), strict=True)]
    np.testing.assert_allclose(together, np.concatenate(apart), atol=5e-2)


@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
def test_bfloat16_gradients_are_near_those_of_float32(make_model, make_trainer, recompute):
    norms = []
    for dtype in ("float32", "bfloat16"):
        spec = on(make_model("llama", dtype=dtype, **HALF_SIZES), "cuda")
        batch = packed(random_samples(spec, 6))
        trainer = make_trainer(spec, recompute=recompute)
        norms.append(trainer.step([batch], PullLoss()).grad_norm)
    assert norms[1] == pytest.approx(norms[0], rel=0.05)


def test_bfloat16_steps_lower_the_loss(make_model, make_trainer):
    spec = on(make_model("llama", dtype="bfloat16", **HALF_SIZES), "cuda")
    batch = packed(random_samples(spec, 6))
    trainer = make_trainer(spec, lr=1e-3)
    losses = [trainer.step([batch], PullLoss()).metrics["loss/total"].value for _ in range(10)]
    assert losses[-1] < losses[0] - 0.1


def test_bfloat16_uses_the_variable_length_kernel_where_torch_has_it(make_model, make_trainer):
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    if "window_size" not in inspect.signature(varlen.varlen_attn).parameters:
        pytest.skip("this torch's variable-length kernel has no window_size")
    spec = on(make_model("llama", dtype="bfloat16", **HALF_SIZES), "cuda")
    batch = packed(random_samples(spec, 6))
    trainer = make_trainer(spec)
    with torch.profiler.profile() as profile:
        trainer.logprobs([batch])
    assert any("varlen" in event.key for event in profile.key_averages())


def test_save_and_load_continue_on_cuda(make_model, make_trainer, tmp_path):
    spec = on(make_model("llama", dtype="bfloat16", **HALF_SIZES), "cuda")
    one, two = (packed(random_samples(spec, 4, seed=seed)) for seed in range(2))
    trainer = make_trainer(spec)
    trainer.step([one], PullLoss())
    trainer.save(tmp_path)
    want = trainer.step([two], PullLoss()).metrics["loss/total"].value
    other = make_trainer(spec)
    other.load(tmp_path)
    assert other.step([two], PullLoss()).metrics["loss/total"].value == want


def test_a_value_model_on_cuda_equals_the_cpu(make_model, make_trainer):
    spec = dataclasses.replace(make_model("llama"), head="value")
    batch = packed(random_samples(spec, 6))
    returns = np.ones(batch.tokens, np.float32)
    batch = dataclasses.replace(batch, columns={**batch.columns, "returns": returns})
    ends = []
    for device in ("cpu", "cuda"):
        trainer = make_trainer(on(spec, device), lr=1e-3)
        before = trainer.values([batch])[0]
        norm = trainer.step([batch], ValueLoss()).grad_norm
        ends.append((before, norm, trainer.values([batch])[0]))
    for cpu, cuda in zip(*ends, strict=True):
        np.testing.assert_allclose(cuda, cpu, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("update", ["merged", "adapter"])
def test_a_frozen_model_on_cuda_takes_an_adapter_trained_there(make_model, make_trainer, update):
    pytest.importorskip("peft", reason="the extra lora is not installed")
    spec = on(make_model("llama"), "cuda")
    options = LoraOptions(rank=4, alpha=8, update=update)
    trainer, frozen = make_trainer(spec, lora=options), make_trainer(spec, total_steps=None)
    batch = packed(random_samples(spec, 4))
    for version in (1, 2):
        trainer.step([batch], PullLoss())
        offer = trainer.weight_update(version)
        assert frozen.update_weights(offer).checksum == offer.checksum
        want, got = (t.logprobs([batch])[0] for t in (trainer, frozen))
        np.testing.assert_allclose(got, want, atol=1e-4)
