"""Transformer Engine's layers beside Megatron's own, on GPUs."""

import dataclasses
import importlib
import importlib.util

import numpy as np
import pytest
import torch

from axisrl.config.lora import LoraOptions
from axisrl.testing import TrainerSuite
from axisrl.testing.sequences import PullLoss, packed, random_samples
from axisrl_megatron.conformance import CASES

ranks = importlib.import_module(f"{__name__.rpartition('.')[0]}.test_ranks")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.needs("megatron"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(
        importlib.util.find_spec("transformer_engine") is None, reason="needs Transformer Engine"
    ),
]
ENGINE = {"transformer_impl": "transformer_engine"}
RECOMPUTED = {
    "recompute_granularity": "full",
    "recompute_method": "uniform",
    "recompute_num_layers": 1,
}
SIZES = {
    "vocab_size": 96,
    "hidden_size": 128,
    "head_dim": 32,
    "intermediate_size": 128,
}
MIXTURE = {"moe_intermediate_size": 128}
KINDS = ("llama", "qwen2", "qwen3", "qwen3_moe")
NEAR = {"float32": 1e-2, "bfloat16": 3e-2}  # its products of float32 are TF32
COMPUTED = [{}, RECOMPUTED, {"use_te_activation_func": True}, {"fp32_residual_connection": True}]


class TestTrainer(TrainerSuite):
    cases = (
        dataclasses.replace(
            CASES[0],
            device="cuda",
            label="transformer engine",
            tolerance=1e-2,
            options={"lr": 1e-3, **ENGINE},
        ),
    )


@pytest.fixture
def spec_of(make_model):
    """(kind, dtype) -> a model whose sizes half types' kernels take."""

    def make(kind, dtype):
        more = MIXTURE if kind == "qwen3_moe" else {}
        return make_model(kind, dtype=dtype, device="cuda", **SIZES, **more)

    return make


def learned(trainer, batch, offloads=False):
    """Answers before, and losses and norms of three steps."""
    before = trainer.logprobs([batch])[0]
    stats = []
    for _ in range(3):
        if offloads:
            trainer.offload({"weights", "optimizer"})
            trainer.reload({"weights", "optimizer"})
        found = trainer.step([batch], PullLoss())
        stats.append((found.metrics["loss/total"].value, found.grad_norm))
    return before, stats


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("megatron", COMPUTED, ids=["plain", "recomputed", "activation", "stream"])
def test_they_learn_what_megatrons_own_learn(
    spec_of, make_trainer, record_property, kind, dtype, megatron
):
    spec = spec_of(kind, dtype)
    batch = packed(random_samples(spec, 6))
    own = {name: v for name, v in megatron.items() if name != "use_te_activation_func"}
    got = learned(make_trainer(spec, lr=1e-3, megatron=megatron, **ENGINE), batch, offloads=True)
    want = learned(make_trainer(spec, lr=1e-3, megatron=own), batch)
    record_property("largest difference of a log-probability", float(abs(got[0] - want[0]).max()))
    record_property("loss and norm, transformer engine", got[1])
    record_property("loss and norm, local", want[1])
    np.testing.assert_allclose(got[1], want[1], rtol=NEAR[dtype], atol=NEAR[dtype])
    mean = 5e-3 if dtype == "float32" else 5e-2
    assert abs(got[0] - want[0]).mean() < mean


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_were_loaded_are_exported_bit_for_bit(spec_of, make_trainer, kind):
    spec = spec_of(kind, "bfloat16")
    engine, own = make_trainer(spec, **ENGINE), make_trainer(spec)
    assert engine.weight_update(1).checksum == own.weight_update(1).checksum


@pytest.mark.parametrize("dtype", NEAR)
def test_they_train_the_adapter_of_megatrons_own(spec_of, make_trainer, dtype):
    spec = spec_of("qwen2", dtype)
    batch = packed(random_samples(spec, 6))
    got, want = (
        learned(make_trainer(spec, lr=1e-3, lora=LoraOptions(rank=4), **options), batch)[1]
        for options in (ENGINE, {})
    )
    np.testing.assert_allclose(got, want, rtol=NEAR[dtype], atol=NEAR[dtype])


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe"])
def test_a_checkpoint_goes_from_layers_to_layers(spec_of, make_trainer, tmp_path, kind):
    spec = spec_of(kind, "bfloat16")
    batch = packed(random_samples(spec, 6))
    first, second, third = (make_trainer(spec, **options) for options in ({}, ENGINE, {}))
    for giver, taker, name in ((first, second, "own"), (second, third, "others")):
        giver.step([batch], PullLoss())
        folder = tmp_path / name
        folder.mkdir()
        giver.save(folder)
        taker.load(folder)
        assert taker.weight_update(1).checksum == giver.weight_update(1).checksum


LAYOUTS = [
    ("qwen3", {"tensor": 2}),
    ("qwen3", {"tensor": 2, "sequence": True}),
    ("qwen3", {"context": 2}),
    ("qwen3", {"pipeline": 2}),
    ("qwen3_moe", {"expert": 2}),
    ("qwen3_moe", {"tensor": 2, "sequence": True, "expert_tensor": 2}),
]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize(("kind", "options"), LAYOUTS, ids=str)
def test_two_gpus_are_as_one(pair, spec_of, tmp_path, kind, options):
    """Memory is handed over and taken back before each step."""
    spec = spec_of(kind, "bfloat16")
    job = ranks.job_of(spec, tmp_path, options, common=ENGINE, offloads=True, micro=3)
    alone, *found = ranks.learn(0, 1, job), *pair.learn(job)
    for got in found:
        np.testing.assert_allclose(got[3], alone[3], rtol=3e-2, atol=3e-2)
    assert found[0][2] == found[1][2]
