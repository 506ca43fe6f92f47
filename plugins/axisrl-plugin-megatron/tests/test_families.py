"""Tests of axisrl_megatron.families."""

import json

import pytest
import torch

from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl_megatron.families import (
    FAMILIES,
    architecture,
    inverse_frequencies,
    read_config,
    read_fields,
    shape_of,
    sparse_layers,
)

MIXTURE = {
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}
ROPE = {"rope_type": "default", "rope_theta": 10000.0}


@pytest.fixture
def folder(tmp_path):
    """Writes a config.json with these changes to a small Llama's."""

    def write(**changes):
        config = {
            "model_type": "llama",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 97,
        }
        (tmp_path / "config.json").write_text(json.dumps(config | changes))
        return tmp_path

    return write


@pytest.mark.parametrize("family", FAMILIES)
def test_a_known_family_is_read(folder, family):
    config = read_config(folder(model_type=family))
    options = architecture(config)
    assert options["add_bias_linear"] is False
    assert options["kv_channels"] * 4 == config.head_dim * 4 if family == "qwen3" else 32
    assert shape_of(config.to_dict()).key_value_heads == 2


def test_a_shape_is_read_from_a_config_that_leaves_out_what_is_usual(folder):
    fields = dict(read_fields(folder()))
    del fields["num_key_value_heads"]
    assert shape_of(fields).key_value_heads == 4


@pytest.mark.parametrize(
    ("changes", "sparse"),
    [
        ({}, [True] * 4),
        ({"mlp_only_layers": [0, 3]}, [False, True, True, False]),
        ({"decoder_sparse_step": 2}, [False, True, False, True]),
        ({"num_experts": 0}, [False] * 4),
        ({"model_type": "qwen3"}, [False] * 4),
    ],
)
def test_layers_are_sparse_as_in_transformers(folder, changes, sparse):
    config = read_config(folder(**{**MIXTURE, "num_hidden_layers": 4, **changes}))
    assert list(sparse_layers(config.to_dict())) == sparse
    shape = shape_of(config.to_dict())
    assert shape.intermediate == (0 if all(sparse) else 64)
    assert (shape.experts, shape.expert_intermediate) == ((8, 24) if any(sparse) else (0, 0))
    assert architecture(config).get("num_moe_experts", 0) == shape.experts


@pytest.mark.parametrize("normed", [True, False])
def test_weights_of_experts_add_up_to_one_where_the_model_says_so(folder, normed):
    options = architecture(read_config(folder(**MIXTURE, norm_topk_prob=normed)))
    assert options["moe_router_pre_softmax"] is not normed
    assert (options["moe_router_topk"], options["moe_ffn_hidden_size"]) == (2, 24)


def test_a_folder_without_a_config_is_refused(tmp_path):
    with pytest.raises(EnvironmentProblem, match="has no config"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model_type": "gpt2"}, "model_type gpt2, none of llama, qwen2, qwen3, qwen3_moe"),
        ({"attention_bias": True}, "attention_bias true"),
        ({"mlp_bias": True}, "mlp_bias true"),
        ({"hidden_act": "gelu"}, "hidden_act gelu, not silu"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window true"),
    ],
)
def test_what_the_layers_would_not_do_is_refused(folder, changes, told):
    with pytest.raises(EnvironmentProblem, match=told):
        read_config(folder(**changes))


def test_frequencies_fall_from_one_to_almost_the_base(folder):
    config = read_config(folder(rope_parameters=ROPE))
    found = inverse_frequencies(config, torch.device("cpu"))
    assert found.tolist() == pytest.approx([1.0, 10000**-0.25, 10000**-0.5, 10000**-0.75])


def test_linear_scaling_divides_them(folder):
    plain, scaled = (
        inverse_frequencies(read_config(folder(rope_parameters=rope)), torch.device("cpu"))
        for rope in (ROPE, {**ROPE, "rope_type": "linear", "factor": 4.0})
    )
    torch.testing.assert_close(scaled, plain / 4)


def test_scaling_that_changes_attention_is_refused(folder):
    yarn = {**ROPE, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    with pytest.raises(ConfigError, match="rotary positions by yarn"):
        inverse_frequencies(read_config(folder(rope_parameters=yarn)), torch.device("cpu"))
