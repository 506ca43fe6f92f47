"""The trainer on a CUDA device: equal to the CPU in float32, near transformers in bfloat16."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from axisrl.config.lora import LoraOptions
from axisrl.testing import TrainerSuite
from axisrl.testing.sequences import PullLoss, packed, random_samples, trained
from axisrl.types import ModelSpec
from axisrl_megatron.conformance import CASES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.needs("megatron", "axisrl_local"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
RECOMPUTED = {
    "recompute_granularity": "full",
    "recompute_method": "uniform",
    "recompute_num_layers": 1,
}
HALF_SIZES = {"hidden_size": 128, "head_dim": 32, "intermediate_size": 128}
KINDS = ("llama", "qwen2", "qwen3")


class TestTrainer(TrainerSuite):
    cases = (
        dataclasses.replace(CASES[0], device="cuda", tolerance=1e-4),
        dataclasses.replace(
            CASES[0],
            device="cuda",
            label="recomputed",
            tolerance=1e-4,
            options={"lr": 1e-3, "megatron": RECOMPUTED},
        ),
    )


def on(spec, device):
    return dataclasses.replace(spec, device=device)


@pytest.mark.parametrize("kind", [*KINDS, "qwen3_moe"])
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


@pytest.mark.parametrize(("dtype", "near"), [("float32", 1e-3), ("bfloat16", 3e-2)])
def test_flex_attention_steps_as_the_default(make_model, make_trainer, dtype, near):
    spec = on(make_model("llama", dtype=dtype, **HALF_SIZES), "cuda")
    batch = packed(random_samples(spec, 6))
    plain, flex = (
        make_trainer(spec, lr=1e-3, **options)
        for options in ({}, {"attention": "axisrl_megatron.flex:FlexRowAttention"})
    )
    for _ in range(2):
        got, want = (trainer.step([batch], PullLoss()).grad_norm for trainer in (flex, plain))
        assert got == pytest.approx(want, rel=near)


@pytest.mark.parametrize(("dtype", "near"), [("float32", 1e-3), ("bfloat16", 3e-2)])
def test_an_adapter_steps_the_same_when_layers_are_recomputed(
    make_model, make_trainer, dtype, near
):
    spec = on(make_model("qwen2", dtype=dtype, **HALF_SIZES), "cuda")
    batch = packed(random_samples(spec, 6))
    kept, recomputed = (
        make_trainer(spec, lr=1e-3, lora=LoraOptions(rank=4), megatron=options)
        for options in ({}, RECOMPUTED)
    )
    for _ in range(3):
        got, want = (trainer.step([batch], PullLoss()).grad_norm for trainer in (recomputed, kept))
        assert got == pytest.approx(want, rel=near) and want > 0


@pytest.mark.parametrize(("dtype", "k2"), [("float32", 1e-6), ("bfloat16", 2e-3)])
def test_logprobs_of_a_mixture_are_those_of_transformers(
    make_model, make_trainer, make_local, record_property, dtype, k2
):
    sizes = {
        "vocab_size": 4096,
        "hidden_size": 512,
        "head_dim": 64,
        "num_attention_heads": 8,
        "num_hidden_layers": 6,
        "moe_intermediate_size": 256,
        "num_experts": 32,
        "num_experts_per_tok": 4,
    }
    spec = on(make_model("qwen3_moe", dtype=dtype, noise=0.0, **sizes), "cuda")
    batch = packed(random_samples(spec, 32))
    got, want = (
        trained(batch, make(spec).logprobs([batch])[0]) for make in (make_trainer, make_local)
    )
    cosine = float(got @ want / np.linalg.norm(got) / np.linalg.norm(want))
    found = 0.5 * float(np.mean((got - want) ** 2))
    record_property("cosine", cosine)
    record_property("k2", found)
    assert cosine > 0.999 and found < k2


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """SmolLM2-135M-Instruct, from the folder that AXISRL_CACHE_DIR names."""
    from axisrl.config.base import NoConfig
    from axisrl.types import BuildContext
    from axisrl_local.smollm2 import SmolLM2

    cache = os.environ.get("AXISRL_CACHE_DIR")
    if not cache or not (Path(cache) / "smollm2-135m").is_dir():
        pytest.skip("needs smollm2-135m in AXISRL_CACHE_DIR: axisrl models fetch smollm2-135m")
    context = BuildContext(run_dir=tmp_path_factory.mktemp("run"))
    path = SmolLM2(NoConfig(), context).fetch(Path(cache))
    return ModelSpec(name="smollm2-135m", path=path, dtype="bfloat16", device="cuda")


@pytest.mark.parametrize(("dtype", "k2"), [("float32", 1e-6), ("bfloat16", 2e-3)])
def test_logprobs_of_a_trained_model_are_those_of_transformers(
    smollm2, make_trainer, make_local, record_property, dtype, k2
):
    spec = dataclasses.replace(smollm2, dtype=dtype)
    batch = packed(texts(spec))
    got, want = (
        trained(batch, make(spec).logprobs([batch])[0]) for make in (make_trainer, make_local)
    )
    cosine = float(got @ want / np.linalg.norm(got) / np.linalg.norm(want))
    found = 0.5 * float(np.mean((got - want) ** 2))
    record_property("cosine", cosine)
    record_property("k2", found)
    assert cosine > 0.999 and found < k2


@pytest.mark.parametrize(("dtype", "near"), [("float32", 1e-4), ("bfloat16", 2e-2)])
def test_five_updates_of_a_trained_model_are_those_of_the_local_trainer(
    smollm2, make_trainer, make_local, record_property, dtype, near
):
    spec = dataclasses.replace(smollm2, dtype=dtype)
    batches = [packed(texts(spec)[::2]), packed(texts(spec)[1::2])]
    ends = []
    for make in (make_trainer, make_local):
        trainer = make(spec, lr=1e-5)
        stats = [trainer.step(batches, PullLoss()) for _ in range(5)]
        ends.append([(s.metrics["loss/total"].value, s.grad_norm) for s in stats])
        trainer.stop()
    record_property("loss and norm, megatron", ends[0])
    record_property("loss and norm, local", ends[1])
    np.testing.assert_allclose(ends[0], ends[1], rtol=near)


def texts(spec):
    """Rows that the model finds likely: its own greedy continuations of a few openings."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(spec.path)
    model = AutoModelForCausalLM.from_pretrained(spec.path, dtype=torch.float32).to("cuda")
    openings = ["The capital of France is", "To bake bread you need", "2, 4, 8, 16,", "Water is"]
    rows = []
    for opening in openings:
        ids = tokenizer(opening, return_tensors="pt").input_ids.to("cuda")
        rows.append(model.generate(ids, max_new_tokens=96, do_sample=False)[0].cpu().numpy())
    return [sample(row, number) for number, row in enumerate(rows)]


def sample(ids, number):
    """A row that trains on everything after its first tokens."""
    from axisrl.types import Sample

    tokens = len(ids) - 1
    mask = np.arange(tokens) >= 3
    return Sample(
        trajectory=number,
        ids=ids[:-1].astype(np.int32),
        labels=ids[1:].astype(np.int32),
        loss_mask=mask,
        advantages=np.where(mask, 1.0, 0.0).astype(np.float32),
        rollout_logprobs=np.full(tokens, -1.0, np.float32),
        versions=np.zeros(tokens, np.int32),
        temperature=np.ones(tokens, np.float32),
        weights=np.where(mask, 1.0 / mask.sum(), 0.0).astype(np.float32),
    )
