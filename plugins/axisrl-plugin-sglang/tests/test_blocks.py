"""Tests of axisrl_sglang.blocks."""

import json

import pytest

from axisrl.errors import ConfigError
from axisrl.types import ModelSpec
from axisrl_sglang.blocks import block_arguments, check_blocks
from axisrl_sglang.config import EngineConfig

SIZES = {
    "hidden_size": 1536,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "intermediate_size": 8960,
}


def model(tmp_path, dtype="bfloat16", **changes):
    (tmp_path / "config.json").write_text(json.dumps(SIZES | changes))
    return ModelSpec(name="m", path=tmp_path, dtype=dtype)


def test_shapes_of_whole_blocks_are_taken(tmp_path):
    check_blocks(model(tmp_path), 2, [])


def test_a_shape_that_does_not_divide_is_refused_with_the_arithmetic(tmp_path):
    small = model(tmp_path, hidden_size=576, num_attention_heads=9, num_key_value_heads=3)
    with pytest.raises(ConfigError) as refused:
        check_blocks(small, 1, [])
    assert "k_proj has 3 heads x 64 = 192 = 1 x 128 + 64 rows" in refused.value.message
    assert "up_proj has hidden_size = 576 = 4 x 128 + 64 columns" in refused.value.message
    assert "fp8_skip=[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj]" in refused.value.fix


def test_what_is_skipped_may_have_any_shape(tmp_path):
    small = model(tmp_path, hidden_size=576, num_attention_heads=9, num_key_value_heads=3)
    left = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj"]
    check_blocks(small, 1, left)


def test_the_fix_leaves_out_all_of_what_sglang_holds_as_one(tmp_path):
    grouped = model(tmp_path, hidden_size=2048, num_attention_heads=32, num_key_value_heads=4)
    with pytest.raises(ConfigError, match=r"tp_size 4\): k_proj has 1 heads x 64") as refused:
        check_blocks(grouped, 4, ["gate_proj", "up_proj", "down_proj"])
    left = "gate_proj, up_proj, down_proj, q_proj, k_proj, v_proj"
    assert f"engine.fp8_skip=[{left}]," in refused.value.fix


def test_each_rank_must_get_whole_blocks(tmp_path):
    with pytest.raises(ConfigError, match=r"tp_size 4.*8960 / 4 = 2240 = 17 x 128 \+ 64 rows"):
        check_blocks(model(tmp_path, num_attention_heads=16, head_dim=128), 4, [])


def test_experts_have_their_own_width(tmp_path):
    with pytest.raises(ConfigError, match="down_proj has 96 / 1 = 96"):
        check_blocks(model(tmp_path, moe_intermediate_size=96), 1, [])


def test_float32_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"model\.dtype is float32"):
        check_blocks(model(tmp_path, dtype="float32"), 1, [])


def test_sizes_of_other_names_are_left_to_sglang(tmp_path):
    (tmp_path / "config.json").write_text('{"n_embd": 5}')
    check_blocks(ModelSpec(name="m", path=tmp_path, dtype="bfloat16"), 1, [])


def test_other_overrides_of_the_model_stay():
    given = {"json_model_override_args": '{"rope_theta": 5}'}
    found = json.loads(block_arguments(given, ["o_proj"])["json_model_override_args"])
    assert found["rope_theta"] == 5
    assert found["quantization_config"]["weight_block_size"] == [128, 128]
    assert found["quantization_config"]["modules_to_not_convert"] == ["o_proj"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fp8_skip": ("o_proj",)}, "no effect without fp8"),
        ({"fp8": True, "sglang": {"quantization": "fp8"}}, "beside fp8"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, problem):
    with pytest.raises(ValueError, match=problem):
        EngineConfig(**options)
