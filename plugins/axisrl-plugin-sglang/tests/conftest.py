"""The fake SGLang where the real one would be, for this process and the ones it starts."""

import asyncio
import os
import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from axisrl.types import BuildContext, ModelSpec
from axisrl_sglang.config import EngineConfig

FAKE = Path(__file__).parent / "fake"


@pytest.fixture
def fake_sglang(monkeypatch):
    """``sglang`` is the fake."""
    monkeypatch.syspath_prepend(str(FAKE))
    paths = [str(FAKE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    real = {name: sys.modules.pop(name) for name in loaded()}
    yield
    for name in loaded():
        del sys.modules[name]
    sys.modules.update(real)


def loaded():
    return [name for name in sys.modules if name.partition(".")[0] == "sglang"]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> ModelSpec:
    """The tiny model of the local plugin."""
    source = pytest.importorskip("axisrl_local.tiny", reason="needs axisrl-plugin-local")
    from axisrl.config.base import NoConfig

    folder = tmp_path_factory.mktemp("models")
    path = source.TinyModel(NoConfig(), BuildContext(run_dir=folder)).fetch(folder)
    return ModelSpec(name="local/tiny", path=path)


class Endless:
    """A tokenizer whose model never ends its turn."""

    stop_ids = frozenset()
    vocab_size = 512

    def decode(self, ids, skip_special=True):
        return " ".join(map(str, ids))


@pytest.fixture
def endless():
    """Services of an engine whose requests end by length alone."""
    return {"tokenizer": Endless()}


@pytest.fixture(scope="session")
def drawn_model(tiny, tmp_path_factory):
    """``drawn_model(kind, architecture, sizes, seed, dtype)`` writes a model of random weights."""
    from safetensors.torch import save_file
    from transformers import AutoConfig

    def draw(kind, architecture, sizes, seed=0, dtype="bfloat16"):
        folder = tmp_path_factory.mktemp(kind) / "model"
        shutil.copytree(tiny.path, folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        config = AutoConfig.for_model(kind, **{"vocab_size": 512, "eos_token_id": None, **sizes})
        config.architectures = [architecture]
        config.save_pretrained(folder)
        save_file(drawn_weights(config, seed, dtype), folder / "model.safetensors")
        return ModelSpec(name=kind, path=folder, dtype=dtype, device="cuda")

    return draw


def drawn_weights(config, seed, dtype):
    """Random weights of a Llama, Qwen or Qwen-MoE under their Hugging Face names."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    hidden, size = config.hidden_size, getattr(config, "head_dim", None)
    size = size or hidden // config.num_attention_heads
    heads, groups = config.num_attention_heads * size, config.num_key_value_heads * size
    mixture = getattr(config, "num_experts", 0)
    found = {"model.embed_tokens.weight": (config.vocab_size, hidden), "model.norm.weight": ()}
    for number in range(config.num_hidden_layers):
        layer = f"model.layers.{number}."
        found |= {
            f"{layer}input_layernorm.weight": (),
            f"{layer}post_attention_layernorm.weight": (),
        }
        for name, rows in (("q", heads), ("k", groups), ("v", groups)):
            found[f"{layer}self_attn.{name}_proj.weight"] = (rows, hidden)
            if config.model_type == "qwen2":
                found[f"{layer}self_attn.{name}_proj.bias"] = (rows,)
        found[f"{layer}self_attn.o_proj.weight"] = (hidden, heads)
        if config.model_type.startswith("qwen3"):
            found |= {f"{layer}self_attn.{name}_norm.weight": (size, 1) for name in "qk"}
        mlps = [(f"{layer}mlp.", config.intermediate_size)]
        if mixture and number not in config.mlp_only_layers:
            found[f"{layer}mlp.gate.weight"] = (mixture, hidden)
            inner = config.moe_intermediate_size
            mlps = [(f"{layer}mlp.experts.{expert}.", inner) for expert in range(mixture)]
        for mlp, inner in mlps:
            found[f"{mlp}gate_proj.weight"] = found[f"{mlp}up_proj.weight"] = (inner, hidden)
            found[f"{mlp}down_proj.weight"] = (hidden, inner)
    if not config.tie_word_embeddings:
        found["lm_head.weight"] = (config.vocab_size, hidden)
    return {
        name: drawn_tensor(name, shape, hidden, generator).to(getattr(torch, dtype))
        for name, shape in found.items()
    }


def drawn_tensor(name, shape, hidden, generator):
    import torch

    if name.endswith("norm.weight"):
        return torch.ones(shape[0] if shape else hidden)
    # Wide routers, so that few choices are near ties.
    spread = 1.0 if name.endswith("mlp.gate.weight") or "embed" in name else 0.02
    return torch.empty(shape).normal_(0.0, spread, generator=generator)


@pytest.fixture(scope="session")
def said_by_transformers():
    """``said(model, path, count)``: log-probabilities of a path's last ``count`` tokens, with
    ``weights`` in place of the model's where given."""
    import torch
    from transformers import AutoModelForCausalLM

    def said(model, path, count, weights=None):
        dtype = getattr(torch, model.dtype)
        loaded = AutoModelForCausalLM.from_pretrained(model.path, dtype=dtype).to(model.device)
        if weights is not None:
            loaded.load_state_dict(weights)
        with torch.no_grad():
            ids = torch.as_tensor(path, device=model.device).long()
            logprobs = torch.log_softmax(loaded(ids[None]).logits[0].float(), -1)
        found = logprobs[:-1].gather(1, ids[1:, None])[:, 0]
        return found[len(found) - count :].cpu().numpy()

    return said


@pytest.fixture
def serving(fake_sglang, tiny, tmp_path):
    """``serving(test, **options)`` runs the coroutine ``test(engine)`` on a started engine."""
    from axisrl_sglang.engine import SglangEngine

    @asynccontextmanager
    async def started(options):
        engine = SglangEngine(EngineConfig(**options), BuildContext(run_dir=tmp_path, seed=3))
        await engine.start(tiny)
        try:
            yield engine
        finally:
            await engine.stop()

    def run(test, **options):
        async def whole():
            async with started(options) as engine, asyncio.timeout(60):
                return await test(engine)

        return asyncio.run(whole())

    return run
