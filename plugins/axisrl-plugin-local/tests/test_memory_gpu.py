"""Memory hand-over on a CUDA device: it is really free afterwards, and nothing changes."""

import asyncio
import dataclasses
import gc
import subprocess
import sys

import numpy as np
import pytest
import torch

from axisrl.config.lora import LoraOptions
from axisrl.testing.sequences import PullLoss, ValueLoss, packed, random_samples
from axisrl.types import GenerateRequest, SamplingParams

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

WIDE = {"vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1024, "head_dim": 64}
WIDE |= {"num_attention_heads": 8, "num_key_value_heads": 4}
READER = """
import json, sys
from axisrl.ops.cuda_ipc import open_described
for bucket in json.load(open(sys.argv[1])):
    open_described(bucket["memory"]).sum().item()
"""
LEFT = 1 << 20
"""What may stay: odds and ends of less than 1 MiB."""


def allocated():
    """Bytes of tensors on the device. Workspaces of cuBLAS count as tensors; they are torch's."""
    torch.cuda.synchronize()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    return torch.cuda.memory_allocated()


@pytest.fixture
def used():
    """Bytes of tensors on the device, beyond those of before the test."""
    before = allocated()
    return lambda: allocated() - before


def wide(make_model, dtype="bfloat16", head="lm"):
    return dataclasses.replace(make_model("llama", dtype, "cuda", **WIDE), head=head)


def with_returns(spec, seed):
    batch = packed(random_samples(spec, 6, seed=seed))
    returns = np.ones(batch.tokens, np.float32)
    return dataclasses.replace(batch, columns={**batch.columns, "returns": returns})


def drawn(engine, seeds):
    def request(seed):
        ids = np.random.default_rng(seed).integers(4, 97, 20).astype(np.int32)
        return GenerateRequest(
            id=str(seed), prompt_ids=ids, sampling=SamplingParams(max_tokens=24), seed=seed
        )

    return asyncio.gather(*(engine.generate(request(seed)) for seed in seeds))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_engine_leaves_nothing_and_draws_the_same_bits(serve, tiny, used, dtype):
    async def play(engine):
        before, full = await drawn(engine, range(8)), used()
        await engine.offload(["kv_cache"])
        weights = used()
        await engine.offload(["weights"])
        empty = used()
        await engine.reload(["weights"])
        half = used()
        await engine.reload(["kv_cache"])
        return before, await drawn(engine, range(8)), (full, weights, empty, half, used())

    spec = dataclasses.replace(tiny, device="cuda", dtype=dtype)
    before, after, sizes = serve(play, spec, max_batch=8, max_context=1024)
    full, weights, empty, half, back = sizes
    assert full > weights > empty and empty < LEFT, sizes
    assert half == pytest.approx(weights, rel=0.02) and back == pytest.approx(full, rel=0.02), sizes
    for one, other in zip(before, after, strict=True):
        assert one.ids.tobytes() == other.ids.tobytes()
        assert one.logprobs.tobytes() == other.logprobs.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("head", ["lm", "value"])
def test_a_trainer_leaves_nothing_and_steps_to_the_same_bits(
    make_model, make_trainer, used, head, dtype
):
    spec, loss = wide(make_model, dtype, head), PullLoss() if head == "lm" else ValueLoss()
    batches = [with_returns(spec, seed) for seed in range(3)]
    ends = []
    for moves in (False, True):
        trainer = make_trainer(spec)
        parameters = sum(p.numel() for p in trainer._held().net.parameters())
        for batch in batches:
            trainer.step([batch], loss)
            if not moves:
                continue
            everything = used()
            trainer.offload(["optimizer"])
            weights = used()
            trainer.offload(["weights"])
            assert used() < LEFT
            moments = (12 if dtype == "bfloat16" else 8) * parameters
            assert everything - weights == pytest.approx(moments, rel=0.02)
            trainer.reload(["weights"])
            trainer.reload(["optimizer"])
            assert used() == pytest.approx(everything, rel=0.02)
        ends.append(trainer.weight_update(1).checksum)
        trainer.stop()
    assert ends[0] == ends[1]


def test_weights_on_offer_in_device_memory_go_with_the_weights(make_model, make_trainer, used):
    trainer = make_trainer(wide(make_model), transport="cuda_ipc")
    before = used()
    offer = trainer.weight_update(1)
    assert used() > before
    subprocess.run([sys.executable, "-c", READER, offer.location], check=True)
    trainer.offload(["optimizer"])
    with_offer = used()
    trainer.offload(["weights"])
    assert used() < LEFT < with_offer
    trainer.reload(["weights", "optimizer"])
    assert used() == pytest.approx(before, rel=0.02)
    assert trainer.weight_update(2).checksum == offer.checksum


def test_the_device_gets_its_memory_back_not_only_the_allocator(make_model, make_trainer):
    trainer = make_trainer(wide(make_model))
    trainer.step([packed(random_samples(wide(make_model), 6))], PullLoss())
    held, free = allocated(), torch.cuda.mem_get_info()[0]
    trainer.offload(["weights", "optimizer"])
    assert torch.cuda.mem_get_info()[0] - free > 0.9 * held


def test_a_frozen_model_takes_what_it_kept_for_adapters_along(make_model, make_trainer, used):
    pytest.importorskip("peft", reason="the extra lora is not installed")
    spec = wide(make_model, "float32")
    options = LoraOptions(rank=4, alpha=8, update="adapter")
    trainer = make_trainer(spec, lora=options)
    batch = packed(random_samples(spec, 4))
    trainer.step([batch], PullLoss())
    offer, after = trainer.weight_update(1), trainer.logprobs([batch])[0]
    frozen = make_trainer(spec, total_steps=None)
    frozen.update_weights(offer)
    trainer.stop()
    before = frozen.logprobs([batch])[0]
    frozen.offload(["weights", "optimizer"])
    assert used() < LEFT
    frozen.reload(["weights"])
    assert frozen.logprobs([batch])[0].tobytes() == before.tobytes()
    np.testing.assert_allclose(before, after, atol=1e-3)


def test_a_checkpoint_is_written_and_read_from_host_memory(
    make_model, make_trainer, used, tmp_path
):
    spec = wide(make_model)
    batches = [packed(random_samples(spec, 4, seed=seed)) for seed in range(2)]
    trainer = make_trainer(spec)
    trainer.step([batches[0]], PullLoss())
    trainer.offload(["weights", "optimizer"])
    folder = tmp_path / "saved"
    folder.mkdir()
    trainer.save(folder)
    assert used() < LEFT
    trainer.reload(["weights", "optimizer"])
    trainer.step([batches[1]], PullLoss())
    want = trainer.weight_update(1).checksum
    trainer.stop()
    other = make_trainer(spec)
    other.offload(["weights", "optimizer"])
    other.load(folder)
    assert used() < LEFT
    other.reload(["weights", "optimizer"])
    other.step([batches[1]], PullLoss())
    assert other.weight_update(1).checksum == want
