"""Tests of axisrl_sglang.adapters, and of adapters served by the fake SGLang."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from axisrl.errors import WeightSyncError
from axisrl.ops.checksum import weights_checksum
from axisrl.types import AdapterMeta, GenerateRequest, SamplingParams, WeightUpdate
from axisrl_sglang.adapters import described_adapter, write_folder
from axisrl_sglang.config import EngineConfig, LoraOptions
from axisrl_sglang.updates import described

RANK, SCALE = 4, 0.5
MODULES = ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")
REQUEST = GenerateRequest(
    id="r",
    prompt_ids=np.arange(5, 25, dtype=np.int32),
    sampling=SamplingParams(temperature=0.0, max_tokens=4),
    seed=0,
)


def adapter_of(model, path, version=1, seed=0, **changes):
    """An update by an adapter on some modules of the model's first layer, and its tensors."""
    base = load_file(model.path / "model.safetensors")
    modules = [f"model.layers.0.{name}" for name in MODULES]
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for module in modules:
        rows, columns = base[f"{module}.weight"].shape
        tensors[f"{module}.lora_A.weight"] = torch.randn(RANK, columns, generator=generator)
        tensors[f"{module}.lora_B.weight"] = torch.randn(rows, RANK, generator=generator)
    save_file(tensors, path)
    update = WeightUpdate(
        version=version,
        transport="disk",
        location=str(path),
        tensors=(),
        checksum=weights_checksum(tensors),
        adapter=AdapterMeta(rank=RANK, scale=SCALE, targets=tuple(modules)),
    )
    return dataclasses.replace(update, **changes), tensors


def merged_update(model, tensors, path):
    weights = load_file(model.path / "model.safetensors")
    for name, a in tensors.items():
        if name.endswith(".lora_A.weight"):
            module = name.removesuffix(".lora_A.weight")
            weights[f"{module}.weight"] += SCALE * tensors[f"{module}.lora_B.weight"] @ a
    save_file(weights, path)
    return WeightUpdate(
        version=1,
        transport="disk",
        location=str(path),
        tensors=(),
        checksum=weights_checksum(weights),
    )


def test_an_adapter_says_what_merged_weights_say(serving, tiny, tmp_path):
    update, tensors = adapter_of(tiny, tmp_path / "adapter.safetensors")
    merged = merged_update(tiny, tensors, tmp_path / "merged.safetensors")

    async def test(engine, update):
        before = await engine.generate(REQUEST)
        ack = await engine.update_weights(update)
        assert (ack.version, ack.checksum) == (1, update.checksum)
        after = await engine.generate(REQUEST)
        assert after.versions.tolist() == [1] * len(after.ids) and after.cached_tokens == 0
        return before, after

    base, adapted = serving(lambda engine: test(engine, update), lora=LoraOptions(rank=RANK))
    same, whole = serving(lambda engine: test(engine, merged))
    assert np.array_equal(base.logprobs, same.logprobs)
    assert np.array_equal(adapted.ids, whole.ids)
    assert adapted.logprobs == pytest.approx(whole.logprobs, abs=1e-4)
    assert not np.array_equal(base.logprobs, adapted.logprobs)


def test_each_adapter_takes_the_place_of_the_one_before(serving, tiny, tmp_path):
    async def test(engine):
        found = []
        for version in (1, 2, 2):
            path = tmp_path / f"{len(found)}.safetensors"
            update, _ = adapter_of(tiny, path, version, seed=len(found))
            await engine.update_weights(update)
            found.append((await engine.generate(REQUEST)).logprobs.tolist())
        return found

    found = serving(test, lora=LoraOptions(rank=RANK))
    assert len({tuple(logprobs) for logprobs in found}) == 3


def test_an_adapter_that_is_damaged_or_refused_leaves_the_one_before(serving, tiny, tmp_path):
    good, _ = adapter_of(tiny, tmp_path / "good.safetensors")
    other, _ = adapter_of(tiny, tmp_path / "other.safetensors", version=2, seed=1)
    damaged = dataclasses.replace(other, checksum="0")

    async def test(engine):
        await engine.update_weights(good)
        before = await engine.generate(REQUEST)
        with pytest.raises(WeightSyncError, match="not what was sent; it kept what it had"):
            await engine.update_weights(damaged)
        after = await engine.generate(REQUEST)
        assert after.versions[0] == 1
        return before.logprobs, after.logprobs

    before, after = serving(test, lora=LoraOptions(rank=RANK))
    assert np.array_equal(before, after)


def test_the_folder_is_as_peft_writes_it(tiny, tmp_path):
    update, tensors = adapter_of(tiny, tmp_path / "adapter.safetensors")
    adapter = described_adapter(update, LoraOptions())
    assert write_folder(adapter, tmp_path / "folder") == update.checksum
    config = json.loads((tmp_path / "folder" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (RANK, SCALE * RANK)
    assert config["target_modules"] == ["down_proj", "q_proj", "v_proj"]
    written = load_file(tmp_path / "folder" / "adapter_model.safetensors")
    assert written.keys() == {f"base_model.model.{name}" for name in tensors}


@pytest.mark.parametrize(
    ("changes", "options", "problem"),
    [
        ({"adapter": None}, {}, "is full weights"),
        ({"transport": "cuda_ipc"}, {}, "cannot receive an adapter by 'cuda_ipc'"),
        ({}, {"rank": 2}, "rank 4, over engine.lora.rank 2"),
        (
            {},
            {"targets": ("q_proj", "v_proj")},
            "adapts down_proj, which engine.lora.targets leaves out",
        ),
    ],
)
def test_what_the_engine_made_no_room_for_is_refused(tiny, tmp_path, changes, options, problem):
    update, _ = adapter_of(tiny, tmp_path / "adapter.safetensors", **changes)
    with pytest.raises(WeightSyncError, match=problem):
        described_adapter(update, LoraOptions(**options))


@pytest.mark.parametrize(
    ("targets", "problem"),
    [
        (("k_proj",), "k_proj without q_proj and v_proj"),
        (("q_proj",), "q_proj without v_proj"),
        (("v_proj", "q_proj", "up_proj"), "up_proj without gate_proj"),
        (("q_proj", "k_proj", "v_proj", "gate_proj", "o_proj"), ""),
    ],
)
def test_parts_that_sglang_holds_as_one_come_together(tiny, tmp_path, targets, problem):
    update, _ = adapter_of(tiny, tmp_path / "adapter.safetensors")
    update = dataclasses.replace(
        update,
        adapter=dataclasses.replace(update.adapter, targets=tuple(f"m.{t}" for t in targets)),
    )
    if not problem:
        described_adapter(update, LoraOptions())
        return
    with pytest.raises(WeightSyncError, match=problem) as refused:
        described_adapter(update, LoraOptions())
    assert "all-linear" in refused.value.fix


def test_without_lora_an_adapter_is_refused(tiny, tmp_path):
    update, _ = adapter_of(tiny, tmp_path / "adapter.safetensors")
    with pytest.raises(WeightSyncError, match=r"without engine\.lora") as refused:
        described(update, verify=True)
    assert "engine.lora" in refused.value.fix


@pytest.mark.parametrize(
    "options",
    [{"fp8": True, "lora": LoraOptions()}, {"sglang": {"enable_lora": True}}],
)
def test_options_that_do_not_go_together_are_refused(options):
    with pytest.raises(ValueError, match="lora"):
        EngineConfig(**options)


def test_no_room_at_all_is_refused():
    with pytest.raises(ValueError, match="rank 0"):
        LoraOptions(rank=0)
