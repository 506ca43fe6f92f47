"""Parts of the SGLang benchmarks: model folders, requests, and an engine started for a while.

It measures nothing.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from axisrl.config.base import NoConfig
from axisrl.types import BuildContext, GenerateRequest, ModelSpec, SamplingParams
from axisrl_local.tiny import TinyModel
from axisrl_sglang.config import EngineConfig
from axisrl_sglang.engine import SglangEngine

SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-1.5b": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
    "qwen3-4b": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "qwen3-moe-1.3b": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "moe_intermediate_size": 512,
        "num_hidden_layers": 12,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "tie_word_embeddings": False,  # SGLang's class of it ties none
    },
}
"""The published sizes; the mixture is a small one of its family. Weights are drawn by SGLang
(``load_format: dummy``), or :func:`drawn_folder`."""
COMMON: dict[str, Any] = {
    "vocab_size": 151936,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "torch_dtype": "bfloat16",
    "bos_token_id": None,
    "eos_token_id": 3,
}
PORTABLE = {
    "attention_backend": "triton",
    "grammar_backend": "none",
    "cuda_graph_backend_prefill": "disabled",
}
"""Server arguments that need none of SGLang's optional kernels, and compile no prefill graphs."""


def shaped_folder(name: str, work: Path) -> ModelSpec:
    """A folder without weights, in a published shape, with the tiny model's tokenizer."""
    folder = work / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(COMMON | SHAPES[name], indent=2))
    tokenizer = TinyModel(NoConfig(), BuildContext(run_dir=work)).fetch(work)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (tokenizer / file).exists():
            shutil.copy(tokenizer / file, folder / file)
    return ModelSpec(name=name, path=folder, dtype="bfloat16", device="cuda")


def drawn_folder(name: str, work: Path, dtype: str) -> ModelSpec:
    """The same with weights as transformers draws them, on the GPU."""
    from transformers import AutoConfig, AutoModelForCausalLM

    model = dataclasses.replace(shaped_folder(name, work), dtype=dtype)
    config = AutoConfig.from_pretrained(model.path)
    torch.manual_seed(0)
    with torch.device("cuda"):
        net: Any = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    net.save_pretrained(model.path)
    del net
    torch.cuda.empty_cache()
    return model


def random_weights(model: ModelSpec) -> dict[str, torch.Tensor]:
    """Weights for every parameter of the model, on its device."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(model.path)
    with torch.device("meta"):
        net: Any = AutoModelForCausalLM.from_config(config)
    dtype, generator = getattr(torch, model.dtype), torch.Generator(model.device).manual_seed(0)
    return {
        name: torch.empty(p.shape, dtype=dtype, device=model.device).normal_(
            0, 0.02, generator=generator
        )
        for name, p in net.named_parameters()
    }


@asynccontextmanager
async def serving(
    model: ModelSpec, work: Path, options: dict[str, Any]
) -> AsyncIterator[SglangEngine]:
    """The engine with these options, stopped afterwards."""
    engine = SglangEngine(EngineConfig(**options), BuildContext(run_dir=work))
    await engine.start(model)
    try:
        yield engine
    finally:
        await engine.stop()


def requests(prompts: Sequence[Sequence[int]], sampling: SamplingParams) -> list[GenerateRequest]:
    """One a prompt, the i-th with seed i."""
    return [
        GenerateRequest(
            id=f"r{number}",
            prompt_ids=np.asarray(prompt, np.int32),
            sampling=sampling,
            seed=number,
            session=f"s{number}",
        )
        for number, prompt in enumerate(prompts)
    ]
