"""Low-rank adapters served by SGLang itself, on a CUDA device, against merged weights in
transformers."""

import asyncio
import importlib.util

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from axisrl.ops.weights_out import WeightPublisher
from axisrl.types import AdapterMeta, BuildContext, GenerateRequest, SamplingParams
from axisrl_sglang.config import EngineConfig, LoraOptions
from axisrl_sglang.engine import SglangEngine

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
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
RANK, SCALE = 8, 2.0
SOME = ("q_proj", "v_proj", "down_proj", "gate_proj")
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def adapter_for(weights, leaves, seed):
    """Tensors of an adapter on every module with one of these last names."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, weight in weights.items():
        module = name.removesuffix(".weight")
        if module.rpartition(".")[2] in leaves:
            rows, columns = weight.shape
            a, b = torch.empty(RANK, columns), torch.empty(rows, RANK)
            found[f"{module}.lora_A.weight"] = a.normal_(0, 0.1, generator=generator).bfloat16()
            found[f"{module}.lora_B.weight"] = b.normal_(0, 0.1, generator=generator).bfloat16()
    return found


def merged(weights, adapter):
    found = dict(weights)
    for name, a in adapter.items():
        if name.endswith(".lora_A.weight"):
            module = name.removesuffix(".lora_A.weight")
            delta = adapter[f"{module}.lora_B.weight"].float() @ a.float()
            whole = weights[f"{module}.weight"].float() + SCALE * delta
            found[f"{module}.weight"] = whole.bfloat16()
    return found


@pytest.mark.parametrize("seeded", [True, False])
def test_adapters_change_what_is_said_as_merged_weights_do(
    drawn_model, endless, said_by_transformers, tmp_path, record_property, seeded
):
    model = drawn_model("llama", "LlamaForCausalLM", SIZES)
    weights = load_file(model.path / "model.safetensors")
    context = BuildContext(run_dir=tmp_path, seed=3, services=endless)
    options = EngineConfig(
        max_context=1024, seeded=seeded, lora=LoraOptions(rank=RANK), sglang=SMALL
    )
    engine = SglangEngine(options, context)
    publisher = WeightPublisher(tmp_path, "shared_memory")
    prompt = np.random.default_rng(5).integers(0, 512, 100).astype(np.int32)
    ask = GenerateRequest(id="r", prompt_ids=prompt, sampling=SamplingParams(max_tokens=48), seed=7)

    async def update(version, leaves):
        tensors = adapter_for(weights, leaves, version)
        targets = [n.removesuffix(".lora_A.weight") for n in tensors if "lora_A" in n]
        meta = AdapterMeta(rank=RANK, scale=SCALE, targets=tuple(targets))
        offered = publisher.publish(version, tensors, meta)
        ack = await engine.update_weights(offered)
        assert (ack.version, ack.checksum) == (version, offered.checksum)
        return tensors

    async def compare(name, wanted):
        result = await engine.generate(ask)
        path, count = np.concatenate([prompt, result.ids]), len(result.ids)
        gap = np.abs(result.logprobs - said_by_transformers(model, path, count, wanted)).mean()
        plain = np.abs(result.logprobs - said_by_transformers(model, path, count)).mean()
        record_property(f"{name}, mean gap", f"{gap:.4f}, to the base {plain:.4f}")
        assert gap < 0.1
        assert wanted is None or plain > 4 * gap
        return result

    async def whole():
        await engine.start(model)
        try:
            await compare("base", None)
            await compare("all modules", merged(weights, await update(1, ALL)))
            await compare("some kinds", merged(weights, await update(2, SOME)))
            last = await compare("all again", merged(weights, await update(3, ALL)))
            assert set(last.versions.tolist()) == {3}
        finally:
            await engine.stop()
            publisher.close()

    asyncio.run(asyncio.wait_for(whole(), 300))
