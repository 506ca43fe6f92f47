"""Tests of axisrl_megatron.rules."""

import pytest
import torch

from axisrl_megatron.rules import linear_layers, rule_of

QKV = "decoder.layers.3.self_attention.linear_qkv.weight"


def test_a_layer_keeps_its_number():
    assert rule_of("decoder.layers.11.mlp.linear_fc2.weight", 4).names == (
        "model.layers.11.mlp.down_proj.weight",
    )


def test_query_key_and_value_are_interleaved_by_key_value_heads():
    query = torch.arange(8.0).repeat_interleave(2)[:, None]  # 4 heads x 2 x 2
    key, value = 100 + torch.arange(4.0)[:, None], 200 + torch.arange(4.0)[:, None]
    joined = rule_of(QKV, 2).join([query, key, value])[:, 0]
    group = [0, 0, 1, 1, 2, 2, 3, 3]
    assert joined[:8].tolist() == group
    assert joined[8:12].tolist() == [100, 101, 200, 201]
    assert joined[20:].tolist() == [102, 103, 202, 203]


@pytest.mark.parametrize("shape", [(), (5,)], ids=["bias", "weight"])
@pytest.mark.parametrize(("heads", "groups"), [(4, 1), (4, 2), (4, 4)])
def test_split_is_the_inverse_of_join(shape, heads, groups):
    parts = [torch.randn(2 * n, *shape) for n in (heads, groups, groups)]
    rule = rule_of(QKV, 2)
    again = rule.split(rule.join(parts), groups)
    assert all(torch.equal(one, other) for one, other in zip(again, parts, strict=True))


def test_gate_and_up_are_laid_end_to_end():
    rule = rule_of("decoder.layers.0.mlp.linear_fc1.weight", 4)
    gate, up = torch.zeros(3, 2), torch.ones(3, 2)
    joined = rule.join([gate, up])
    assert joined[:, 0].tolist() == [0, 0, 0, 1, 1, 1]
    assert [part.tolist() for part in rule.split(joined)] == [gate.tolist(), up.tolist()]


def test_a_parameter_nobody_knows_is_an_error():
    with pytest.raises(KeyError, match="weird"):
        rule_of("decoder.layers.0.weird.weight", 4)


def test_an_expert_is_counted_from_the_first_that_is_here():
    rule = rule_of("decoder.layers.2.mlp.experts.local_experts.1.linear_fc1.weight", 4, 8)
    folder = "model.layers.2.mlp.experts.9"
    assert rule.names == (f"{folder}.gate_proj.weight", f"{folder}.up_proj.weight")
    assert rule.expert and rule.axis == 0
    other = rule_of("decoder.layers.2.mlp.experts.local_experts.0.linear_fc2.weight", 4, 8)
    assert other.names == ("model.layers.2.mlp.experts.8.down_proj.weight",)
    assert other.expert and other.axis == 1


def test_an_expert_in_a_layer_of_all_is_counted_the_same():
    grouped = rule_of("decoder.layers.2.mlp.experts.linear_fc1.weight11", 4, 8)
    alone = rule_of("decoder.layers.2.mlp.experts.local_experts.11.linear_fc1.weight", 4, 8)
    assert grouped == alone


@pytest.mark.parametrize(
    ("inside", "apart"),
    [
        ("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"),
        ("mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"),
    ],
)
def test_a_norm_inside_a_linear_layer_is_that_before_it(inside, apart):
    rule = rule_of(f"decoder.layers.3.{inside}", 4)
    assert rule == rule_of(f"decoder.layers.3.{apart}", 4)
    assert rule.split(torch.ones(8))[0].tolist() == [1.0] * 8


def test_linear_layers_are_those_with_a_matrix():
    assert linear_layers() == [
        *(f"self_attn.{name}_proj" for name in "qkvo"),
        *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
    ]


def test_a_router_is_whole_everywhere():
    rule = rule_of("decoder.layers.2.mlp.router.weight", 4, 8)
    assert rule.names == ("model.layers.2.mlp.gate.weight",)
    assert rule.axis is None and not rule.expert
