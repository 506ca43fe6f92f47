"""Experts told by SGLang itself, on a CUDA device, against the router of transformers."""

import asyncio
import dataclasses
import importlib.util

import numpy as np
import pytest
import torch

from axisrl.builtin.memory_handles import MemoryHandleStore
from axisrl.config.base import NoConfig
from axisrl.errors import EnvironmentProblem
from axisrl.runtime.partial import continued, joined
from axisrl.types import BuildContext, GenerateRequest, SamplingParams
from axisrl_sglang.config import EngineConfig
from axisrl_sglang.engine import SglangEngine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="needs SGLang"),
]
SIZES = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "mlp_only_layers": [],
    "decoder_sparse_step": 1,
    "norm_topk_prob": True,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
SMALL = {
    "attention_backend": "triton",
    "grammar_backend": "none",
    "mem_fraction_static": 0.2,
    "cuda_graph_backend_prefill": "disabled",
    "max_total_tokens": 16384,
    "max_running_requests": 8,
}


def router_of_transformers(model, ids):
    """Experts of every token of a path, sorted: (tokens, layers, top_k)."""
    from transformers import AutoModelForCausalLM

    dtype = getattr(torch, model.dtype)
    loaded = AutoModelForCausalLM.from_pretrained(model.path, dtype=dtype).to(model.device)
    chosen = {}

    def note(number):
        def hook(module, inputs, output):
            logits = output if isinstance(output, torch.Tensor) else output[0]
            top = torch.topk(logits.float(), SIZES["num_experts_per_tok"], dim=-1).indices
            chosen[number] = top.view(-1, SIZES["num_experts_per_tok"])

        return hook

    for number, layer in enumerate(loaded.model.layers):
        if hasattr(layer.mlp, "gate"):
            layer.mlp.gate.register_forward_hook(note(number))
    with torch.no_grad():
        loaded(torch.as_tensor(ids, device=loaded.device)[None].long())
    assert sorted(chosen) == [0, 1, 2, 3]
    found = torch.stack([chosen[number] for number in sorted(chosen)], 1)
    return found.sort(-1).values.cpu().numpy()


def share_alike(told, wanted):
    """Share of (token, layer) with the same experts."""
    return float((np.sort(told, axis=-1) == wanted).all(-1).mean())


@pytest.mark.parametrize(
    ("dtype", "graphs", "least"),
    [("bfloat16", False, 0.9), ("bfloat16", True, 0.9), ("float32", False, 0.97)],
)
def test_experts_are_those_that_a_router_over_the_same_tokens_chooses(
    drawn_model, endless, tmp_path, record_property, dtype, graphs, least
):
    model = drawn_model("qwen3_moe", "Qwen3MoeForCausalLM", SIZES, dtype=dtype)
    context = BuildContext(run_dir=tmp_path, seed=3, services=endless)
    store = MemoryHandleStore(NoConfig(), context)
    arguments = SMALL | (
        {"cuda_graph_max_bs_decode": 4} if graphs else {"disable_cuda_graph": True}
    )
    engine = SglangEngine(EngineConfig(max_context=1024, sglang=arguments), context)

    async def keep(values):
        return await store.put(values, owner="engine-0")

    async def told(result):
        return np.concatenate([await store.get(part) for part in result.routing])

    def compare(name, path, found):
        assert found.dtype == np.uint8 and found.shape == (len(path) - 1, 4, 4)
        share = share_alike(found, router_of_transformers(model, path[:-1]))
        record_property(f"{name}, share of (token, layer) alike", f"{share:.4f}")
        assert share >= least

    async def whole():
        engine.capture_routing(keep)
        await engine.start(model)
        try:
            await one_call()
            await a_later_turn()
            await an_interrupted_call()
        finally:
            await engine.stop()

    prompt = np.random.default_rng(5).integers(0, 512, 100).astype(np.int32)
    ask = GenerateRequest(
        id="r",
        prompt_ids=prompt,
        sampling=SamplingParams(max_tokens=60),
        seed=7,
        routing_from=0,
    )
    seen = {}

    async def one_call():
        result = await engine.generate(ask)
        seen["path"] = np.concatenate([prompt, result.ids])
        seen["told"] = await told(result)
        compare("one call", seen["path"], seen["told"])

    async def a_later_turn():
        path = np.concatenate([seen["path"], prompt[:5]]).astype(np.int32)
        result = await engine.generate(dataclasses.replace(ask, prompt_ids=path, seed=8))
        assert result.cached_tokens >= len(seen["path"]) - 8
        found = await told(result)
        compare("with a cached prefix", np.concatenate([path, result.ids]), found)
        cached = min(result.cached_tokens, len(seen["told"]))
        assert np.array_equal(found[:cached], seen["told"][:cached])
        start = len(path) - 1
        rest = dataclasses.replace(ask, prompt_ids=path, seed=8, routing_from=start)
        assert len(await told(await engine.generate(rest))) == len(result.ids)

    async def an_interrupted_call():
        call = dataclasses.replace(
            ask, prompt_ids=prompt[::-1].copy(), sampling=SamplingParams(max_tokens=400), seed=9
        )
        pieces = []
        for _ in range(2):
            running = asyncio.ensure_future(engine.generate(continued(call, pieces)))
            other = dataclasses.replace(ask, session="other", sampling=SamplingParams(max_tokens=9))
            await engine.generate(other)
            await engine.abort()
            pieces.append(await running)
        assert {piece.finish_reason for piece in pieces} == {"abort"}
        assert 0 < sum(len(piece.ids) for piece in pieces) < 400
        whole = joined([*pieces, await engine.generate(continued(call, pieces))])
        compare("interrupted", np.concatenate([call.prompt_ids, whole.ids]), await told(whole))

    asyncio.run(asyncio.wait_for(whole(), 300))


def test_a_tied_mixture_of_which_sglang_ties_nothing_does_not_start(drawn_model, tmp_path):
    sizes = SIZES | {"tie_word_embeddings": True}
    model = drawn_model("qwen3_moe", "Qwen3MoeForCausalLM", sizes)
    engine = SglangEngine(
        EngineConfig(sglang=SMALL | {"disable_cuda_graph": True}), BuildContext(run_dir=tmp_path)
    )
    with pytest.raises(EnvironmentProblem, match="keeps an output matrix apart from the embedding"):
        asyncio.run(engine.start(model))
