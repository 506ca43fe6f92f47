"""Tests of axisrl_sglang.fp8, and of FP8 blocks held by the fake SGLang."""

import asyncio
import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from axisrl.errors import ConfigError, EnvironmentProblem, WeightSyncError
from axisrl.ops.checksum import weights_checksum
from axisrl.types import BuildContext, GenerateRequest, ModelSpec, SamplingParams, WeightUpdate
from axisrl_sglang.config import EngineConfig
from axisrl_sglang.fp8 import for_blocks, quantised

LARGEST = 448.0


def dequantised(values, scale):
    rows, columns = values.shape
    spread = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :columns]
    return values.float() * spread


def drawn(rows, columns, seed=0, spread=0.02):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator).mul(spread).bfloat16()


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 300),
    columns=st.integers(1, 300),
    power=st.integers(-30, 20),
    seed=st.integers(0, 9),
)
def test_errors_are_within_what_e4m3_can_hold(rows, columns, power, seed):
    weight = drawn(rows, columns, seed, 2.0**power)
    values, scale = quantised(weight)
    assert values.shape == weight.shape and values.dtype == torch.float8_e4m3fn
    assert scale.shape == (-(-rows // 128), -(-columns // 128))
    spread = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :columns]
    error = (dequantised(values, scale) - weight.float()).abs()
    bound = torch.maximum(weight.float().abs() * 2.0**-4, spread * 2.0**-10) * 1.001
    assert (error <= bound).all()


def test_the_largest_value_of_a_block_is_the_largest_of_the_type():
    weight = drawn(256, 384)
    values, scale = quantised(weight)
    blocks = weight.float().view(2, 128, 3, 128).abs().amax(dim=(1, 3))
    assert torch.allclose(scale, blocks / LARGEST)
    assert torch.equal(
        values.float().view(2, 128, 3, 128).abs().amax(dim=(1, 3)), torch.full((2, 3), LARGEST)
    )


def test_blocks_are_alone():
    weight = drawn(256, 256)
    weight[:128, :128] *= 1000
    _, scale = quantised(weight)
    assert torch.equal(scale[1:], quantised(drawn(256, 256))[1][1:])
    assert scale[0, 0] > 100 * scale[0, 1]


def test_zeros_stay_zeros():
    values, scale = quantised(torch.zeros(130, 5))
    assert not values.float().any() and torch.equal(scale, torch.ones(2, 1))


def test_what_was_quantised_is_quantised_to_itself():
    values, scale = quantised(drawn(256, 256))
    again, same = quantised(dequantised(values, scale))
    assert torch.equal(again.view(torch.uint8), values.view(torch.uint8))
    assert torch.allclose(same, scale)


class Held(nn.Module):
    """Parameters by name, as SGLang has them."""

    def __init__(self, **dtypes):
        super().__init__()
        for name, dtype in dtypes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(1, dtype=dtype), False))

    def named_parameters(self, *args, **kwargs):
        for name, value in super().named_parameters(*args, **kwargs):
            yield name.replace("/", "."), value


def test_only_what_the_model_holds_in_blocks_is_quantised():
    model = Held(
        **{
            "m/0/qkv_proj/weight_scale_inv": torch.float32,
            "m/0/mlp/experts/w13_weight_scale_inv": torch.float32,
            "m/0/o_proj/weight": torch.bfloat16,
        }
    )
    given = {
        "m.0.q_proj.weight": drawn(4, 4),
        "m.0.q_proj.bias": drawn(1, 4)[0],
        "m.0.o_proj.weight": drawn(4, 4),
        "m.0.mlp.experts.3.up_proj.weight": drawn(4, 4),
        "m.0.mlp.gate.weight": drawn(4, 4),
        "m.embed.weight": drawn(4, 4),
    }
    found = for_blocks(model, given)
    eighth = {name for name, tensor in found.items() if tensor.element_size() == 1}
    assert eighth == {"m.0.q_proj.weight", "m.0.mlp.experts.3.up_proj.weight"}
    assert found.keys() - given.keys() == {f"{name}_scale_inv" for name in eighth}
    assert found["m.0.o_proj.weight"] is given["m.0.o_proj.weight"]


def test_scales_that_are_powers_of_two_are_refused():
    model = Held(**{"a/weight_scale_inv": torch.int32})
    with pytest.raises(ValueError, match="powers of two"):
        for_blocks(model, {})


@pytest.fixture(scope="module")
def square(tiny, tmp_path_factory):
    """A model of whole blocks, with the tiny model's tokenizer."""
    folder = shutil.copytree(tiny.path, tmp_path_factory.mktemp("square") / "model")
    config = json.loads((folder / "config.json").read_text())
    sizes = {"hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 1, "head_dim": 64}
    config |= sizes | {"num_attention_heads": 2, "num_key_value_heads": 2}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights(config, 0), folder / "model.safetensors")
    return ModelSpec(name="square", path=folder, dtype="bfloat16")


def weights(config, seed):
    found = {
        "model.embed_tokens.weight": drawn(config["vocab_size"], 128, seed, 0.5),
        "model.norm.weight": torch.ones(128).bfloat16(),
    }
    layer = "model.layers.0."
    for at, name in enumerate(("q", "k", "v", "o")):
        found[f"{layer}self_attn.{name}_proj.weight"] = drawn(128, 128, seed + at, 0.1)
    for at, name in enumerate(("gate", "up", "down")):
        found[f"{layer}mlp.{name}_proj.weight"] = drawn(128, 128, seed + 10 + at, 0.1)
    for name in ("input", "post_attention"):
        found[f"{layer}{name}_layernorm.weight"] = torch.ones(128).bfloat16()
    return found


@pytest.fixture
def served(fake_sglang, square, tmp_path):
    """``served(test, **options)`` runs ``test(engine)`` on an engine with the square model."""
    from axisrl_sglang.engine import SglangEngine

    async def whole(test, options):
        engine = SglangEngine(EngineConfig(**options), BuildContext(run_dir=tmp_path, seed=3))
        await engine.start(square)
        try:
            async with asyncio.timeout(60):
                return await test(engine)
        finally:
            await engine.stop()

    return lambda test, **options: asyncio.run(whole(test, options))


async def greedy(engine):
    request = GenerateRequest(
        id="r",
        prompt_ids=np.arange(5, 15, dtype=np.int32),
        sampling=SamplingParams(temperature=0.0, max_tokens=1),
        seed=0,
    )
    return float((await engine.generate(request)).logprobs[0])


def test_first_and_new_weights_are_served_in_blocks(served, square, tmp_path):
    config = json.loads((square.path / "config.json").read_text())
    new = weights(config, 5)
    path = tmp_path / "v1.safetensors"
    save_file(new, path)
    update = WeightUpdate(
        version=1,
        transport="disk",
        location=str(path),
        tensors=(),
        checksum=weights_checksum(new),
    )

    async def test(engine):
        first = await greedy(engine)
        ack = await engine.update_weights(update)
        assert (ack.version, ack.checksum) == (1, update.checksum), "of what was sent"
        return first, await greedy(engine)

    plain, eight = served(test), served(test, fp8=True)
    assert plain != eight, "something is quantised"
    assert eight == pytest.approx(plain, abs=0.2)


def test_a_value_that_is_not_served_is_found(served, square, tmp_path):
    config = json.loads((square.path / "config.json").read_text())
    new = weights(config, 5)
    del new["model.layers.0.mlp.up_proj.weight"]
    path = tmp_path / "v1.safetensors"
    save_file(new, path)
    update = WeightUpdate(
        version=1, transport="disk", location=str(path), tensors=(), checksum=weights_checksum(new)
    )

    async def test(engine):
        await engine.update_weights(update)

    with pytest.raises(WeightSyncError, match=r"not \(wholly\) given: .*gate_up_proj\.weight"):
        served(test, fp8=True)


@pytest.mark.usefixtures("fake_sglang")
def test_a_model_that_cannot_be_blocked_is_refused_before_anything_starts(tiny, tmp_path):
    from axisrl_sglang.engine import SglangEngine

    engine = SglangEngine(EngineConfig(fp8=True), BuildContext(run_dir=tmp_path))
    spec = ModelSpec(name="tiny", path=tiny.path, dtype="bfloat16")
    with pytest.raises(ConfigError, match="tiny does not divide"):
        asyncio.run(engine.start(spec))


def test_a_model_whose_files_are_not_all_there_does_not_start(served, square):
    index = square.path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"model.norm.weight": "model-2-of-2.safetensors"}}))
    try:
        with pytest.raises(EnvironmentProblem, match=r"weights of .*model-2-of-2\.safetensors"):
            served(None, fp8=True)
    finally:
        index.unlink()
