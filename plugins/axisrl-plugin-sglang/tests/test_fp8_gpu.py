"""FP8 blocks held by SGLang itself, on a CUDA device, in the shapes of Qwen2.5-1.5B."""

import asyncio
import dataclasses
import importlib.util
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from axisrl.errors import WeightSyncError
from axisrl.ops.weights_out import WeightPublisher
from axisrl.types import BuildContext, GenerateRequest, SamplingParams
from axisrl_sglang.config import EngineConfig
from axisrl_sglang.engine import SglangEngine
from axisrl_sglang.fp8 import quantised

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="needs SGLang"),
]
SMALL = {
    "attention_backend": "triton",
    "grammar_backend": "none",
    "mem_fraction_static": 0.2,
    "disable_cuda_graph": True,
    "cuda_graph_backend_prefill": "disabled",
    "max_total_tokens": 16384,
}
SIZES = {
    "hidden_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "intermediate_size": 8960,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}


def in_blocks(weights):
    """What an engine computes with: quantised and back."""
    found = {}
    for name, weight in weights.items():
        found[name] = weight
        if ".layers." in name and name.endswith("proj.weight"):
            values, scale = quantised(weight.cuda())
            spread = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
            found[name] = (values.float() * spread).to(weight.dtype)
    return found


def test_weights_are_served_in_blocks_whatever_way_they_come(
    drawn_model, endless, said_by_transformers, tmp_path, record_property
):
    models = [drawn_model("qwen2", "Qwen2ForCausalLM", SIZES, seed) for seed in (0, 1)]
    context = BuildContext(run_dir=tmp_path, seed=3, services=endless)
    engine = SglangEngine(EngineConfig(max_context=1024, fp8=True, sglang=SMALL), context)
    prompt = np.random.default_rng(5).integers(0, 512, 100).astype(np.int32)
    ask = GenerateRequest(id="r", prompt_ids=prompt, sampling=SamplingParams(max_tokens=64), seed=7)

    async def compare(name, model):
        result = await engine.generate(ask)
        path, count = np.concatenate([prompt, result.ids]), len(result.ids)
        blocks = in_blocks(load_file(model.path / "model.safetensors"))
        (other,) = (each for each in models if each is not model)
        found = {
            "bf16": said_by_transformers(model, path, count),
            "weights in blocks": said_by_transformers(model, path, count, blocks),
            "the other weights": said_by_transformers(other, path, count),
        }
        gaps = {what: np.abs(result.logprobs - said) for what, said in found.items()}
        for what, gap in gaps.items():
            text = f"mean {gap.mean():.4f} max {gap.max():.4f}"
            record_property(f"{name}, against {what}", text)
        # Activations are in FP8, too; of other weights nothing is alike.
        assert gaps["bf16"].mean() < 0.1 * gaps["the other weights"].mean()
        return result

    async def update(version, transport, model):
        weights = load_file(model.path / "model.safetensors", device="cuda")
        publisher = WeightPublisher(tmp_path, transport)
        try:
            offered = publisher.publish(version, weights)
            torch.cuda.synchronize()
            begun = time.perf_counter()
            ack = await engine.update_weights(offered)
            seconds = time.perf_counter() - begun
            assert (ack.version, ack.checksum) == (version, offered.checksum)
            size = sum(weight.nbytes for weight in weights.values())
            what = f"update {version} by {transport}"
            record_property(what, f"{size / 1e6:.0f} MB in {seconds:.3f} s")
        finally:
            publisher.close()

    async def a_damaged_update():
        weights = load_file(models[0].path / "model.safetensors", device="cuda")
        publisher = WeightPublisher(tmp_path, "disk")
        offered = publisher.publish(9, weights)
        wrong = dataclasses.replace(offered, checksum="0")
        with pytest.raises(WeightSyncError, match="not what was sent; it kept what it had"):
            await engine.update_weights(wrong)
        publisher.close()

    async def whole():
        await engine.start(models[0])
        try:
            first = await compare("at start", models[0])
            await update(1, "cuda_ipc", models[1])
            second = await compare("after cuda_ipc", models[1])
            assert not np.array_equal(first.ids, second.ids)
            await update(2, "disk", models[0])
            await update(3, "cuda_ipc", models[0])
            await a_damaged_update()
            again = await compare("after disk and cuda_ipc", models[0])
            assert np.array_equal(again.ids, first.ids)
            assert np.array_equal(again.logprobs, first.logprobs)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(whole(), 300))
