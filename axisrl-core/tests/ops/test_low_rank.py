"""Tests of axisrl.ops.low_rank."""

import json

import pytest
import torch
from safetensors.torch import load_file

from axisrl.ops.low_rank import (
    check_scale,
    factor_names,
    merged,
    weight_name,
    write_folder,
)


def factors(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    shapes = [(5, 7), (2, 7), (5, 2)]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def test_a_folder_is_as_peft_writes_it(tmp_path):
    _, a, b = factors()
    names = factor_names("model.layers.0.mlp.up_proj")
    given = dict(zip(names, (a, b), strict=True))
    write_folder(tmp_path / "it", given, rank=2, scale=1.5, targets=["up_proj"])
    config = json.loads((tmp_path / "it" / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 2, 3.0)
    assert config["target_modules"] == ["up_proj"]
    written = load_file(tmp_path / "it" / "adapter_model.safetensors")
    assert written.keys() == {f"base_model.model.{name}" for name in names}
    assert torch.equal(written[f"base_model.model.{names[1]}"], b)


@pytest.mark.parametrize(("saved", "own"), [(None, 2.0), (2.0, None), (2.0, 1.0)])
def test_another_scale_than_was_saved_is_told(saved, own):
    check_scale(saved, saved)
    with pytest.raises(ValueError, match=r"it has .* this trainer"):
        check_scale(saved, own)


def test_names_are_those_of_the_contract():
    assert weight_name("m.q") == "m.q.weight"
    assert factor_names("m.q") == ("m.q.lora_A.weight", "m.q.lora_B.weight")


def test_a_merged_weight_is_w_plus_scale_b_a():
    weight, a, b = factors()
    want = weight.double() + 1.5 * b.double() @ a.double()
    torch.testing.assert_close(merged(weight, a, b, 1.5).double(), want, atol=1e-6, rtol=1e-6)


def test_a_merged_layer_answers_as_base_and_adapter():
    weight, a, b = factors()
    x = torch.randn(3, 7, generator=torch.Generator().manual_seed(2))
    want = x @ weight.T + 2.0 * (x @ a.T) @ b.T
    torch.testing.assert_close(x @ merged(weight, a, b, 2.0).T, want, atol=1e-5, rtol=1e-5)


def test_half_weights_are_rounded_once():
    weight, a, b = factors(torch.bfloat16)
    want = (weight.float() + 0.5 * b.float() @ a.float()).bfloat16()
    assert torch.equal(merged(weight, a, b, 0.5), want)


@pytest.mark.parametrize("zero", [1, 2])
def test_a_zero_factor_leaves_the_weight_bit_for_bit(zero):
    tensors = factors()
    tensors[zero].zero_()
    assert torch.equal(merged(*tensors, 3.0), tensors[0])


def test_nothing_given_is_changed():
    weight, a, b = factors()
    before = [tensor.clone() for tensor in (weight, a, b)]
    merged(weight, a, b, 1.0)
    assert all(map(torch.equal, before, (weight, a, b)))
