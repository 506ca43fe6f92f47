"""Tests of axisrl_megatron.layout."""

import pytest

from axisrl.errors import ConfigError
from axisrl_megatron.layout import Layout, ModelShape

DENSE = ModelShape(layers=28, heads=12, key_value_heads=2, intermediate=8960, vocabulary=151936)
SPARSE = ModelShape(
    layers=48,
    heads=32,
    key_value_heads=4,
    intermediate=0,
    vocabulary=151936,
    experts=128,
    expert_intermediate=768,
)
FEW = ModelShape(layers=2, heads=4, key_value_heads=2, intermediate=128, vocabulary=3)


def test_what_the_sizes_leave_is_data_parallel():
    layout = Layout.over(16, tensor=2, pipeline=2, context=2)
    assert (layout.data, layout.world) == (2, 16)


def test_ranks_are_numbered_tensor_first_then_context_data_and_stages():
    layout = Layout.over(16, tensor=2, pipeline=2, context=2)
    at = [layout.place(rank) for rank in range(layout.world)]
    assert [(one.tensor, one.context) for one in at[:4]] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [one.data for one in at[:8]] == [0] * 4 + [1] * 4
    assert [one.stage for one in at] == [0] * 8 + [1] * 8


def test_one_rank_of_the_last_stage_speaks_for_each_share():
    layout = Layout.over(16, tensor=2, pipeline=2, context=2)
    shares = [layout.share(rank) for rank in range(layout.world)]
    assert [rank for rank, share in enumerate(shares) if share.speaks] == [8, 12]
    assert [share.index for share in shares] == ([0] * 4 + [1] * 4) * 2


def test_experts_are_divided_among_the_ranks_of_a_stage():
    layout = Layout.over(16, tensor=2, pipeline=2, expert=2, expert_tensor=2)
    at = [layout.place(rank) for rank in range(layout.world)]
    assert [one.expert_tensor for one in at] == [0, 1] * 8
    assert [one.expert for one in at] == [0, 0, 1, 1] * 4
    assert [one.expert_data for one in at] == ([0] * 4 + [1] * 4) * 2


@pytest.mark.parametrize(
    ("sizes", "parts", "whole", "coupled"),
    [
        ({}, [0], True, False),
        ({"tensor": 2}, [0, 1], False, False),
        ({"expert": 4}, [0, 1, 2, 3], False, True),
        ({"tensor": 2, "expert": 2}, [0, 1], False, False),
        ({"tensor": 4, "expert": 2}, [0, 1, 2, 3], False, False),
        ({"context": 2, "expert_tensor": 2}, [0, 1], False, False),
        ({"tensor": 2, "expert": 2, "expert_tensor": 2}, [0, 1, 2, 3], False, True),
        ({"pipeline": 2, "expert": 2}, [0, 1, 4, 5], False, True),
    ],
)
def test_who_has_a_part_and_who_waits_for_whom(sizes, parts, whole, coupled):
    layout = Layout.over(8, **sizes)
    assert [rank for rank in range(8) if layout.has_part(rank)] == parts
    assert layout.parts == len(parts)
    assert layout.expert_replicas * layout.expert_parts * layout.pipeline == layout.world
    assert layout.share(0).whole is whole
    assert layout.coupled is coupled


def test_a_world_that_the_sizes_do_not_divide_is_refused_with_the_arithmetic():
    message = "6 trainer ranks cannot be divided into tensor 2 x pipeline 2 x context 1 = 4"
    with pytest.raises(ConfigError, match=message) as problem:
        Layout.over(6, tensor=2, pipeline=2)
    assert "multiple of 4" in problem.value.fix


def test_ranks_that_the_experts_do_not_divide_are_refused_with_the_arithmetic():
    message = "the 4 trainer ranks of a stage cannot be divided into expert 4 x expert_tensor 2 = 8"
    with pytest.raises(ConfigError, match=message):
        Layout.over(8, pipeline=2, expert=4, expert_tensor=2)


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        (DENSE, {}),
        (DENSE, {"tensor": 2, "pipeline": 7, "virtual": 2, "data": 3}),
        (SPARSE, {"expert": 8, "data": 16}),
        (SPARSE, {"pipeline": 2, "expert": 4, "expert_tensor": 2, "data": 8}),
    ],
)
def test_a_layout_that_divides_the_model_passes(shape, sizes):
    Layout(**sizes).check(shape)


@pytest.mark.parametrize(
    ("shape", "sizes", "told"),
    [
        (DENSE, {"tensor": 8}, "12 attention heads / tensor 8 leaves 4"),
        (DENSE, {"tensor": 4}, "2 key-value heads / tensor 4 leaves 2"),
        (DENSE, {"tensor": 3}, "8960 columns of the MLP / tensor 3 leaves 2"),
        (FEW, {"tensor": 2}, "3 tokens of the vocabulary are too few for tensor 2"),
        (DENSE, {"pipeline": 8}, "28 layers / pipeline x virtual 8 leaves 4"),
        (DENSE, {"pipeline": 4, "virtual": 2}, "28 layers / pipeline x virtual 8 leaves 4"),
        (DENSE, {"virtual": 2}, "virtual 2 needs pipeline above 1"),
        (DENSE, {"expert": 2}, "expert 2 x 1 needs a model with experts"),
        (SPARSE, {"expert": 3, "data": 3}, "128 experts / expert 3 leaves 2"),
        (SPARSE, {"expert_tensor": 5, "data": 5}, "768 columns of an expert / expert_tensor 5"),
        (SPARSE, {"tensor": 2, "data": 4}, "tensor 2 of a model with experts needs sequence: true"),
    ],
)
def test_a_layout_that_leaves_a_rest_is_refused_with_the_arithmetic(shape, sizes, told):
    with pytest.raises(ConfigError, match=told):
        Layout(**sizes).check(shape)


def test_the_first_net_of_all_has_the_embedding_and_the_last_of_all_the_head():
    layout = Layout(pipeline=3, virtual=2)
    chunks = [chunk for stage in range(3) for chunk in layout.chunks(stage)]
    assert [chunk.first for chunk in chunks] == [True] + [False] * 5
    assert [chunk.last for chunk in chunks] == [False] * 5 + [True]
    assert [chunk.virtual for chunk in chunks] == [0, 1] * 3
    assert [chunk.virtual for chunk in Layout(pipeline=3).chunks(1)] == [None]


def test_a_vocabulary_is_padded_until_it_is_divided():
    assert [Layout(tensor=4).padded(tokens) for tokens in (96, 97, 100)] == [96, 100, 100]


@pytest.mark.parametrize(
    ("sizes", "multiple"),
    [
        ({}, 1),
        ({"tensor": 4}, 1),
        ({"context": 3}, 6),
        ({"tensor": 4, "sequence": True}, 4),
        ({"tensor": 4, "context": 2, "sequence": True}, 16),
    ],
)
def test_tokens_are_padded_until_every_rank_has_as_many(sizes, multiple):
    assert Layout(**sizes).token_multiple == multiple


def test_every_problem_is_named_at_once():
    with pytest.raises(ConfigError) as problem:
        Layout(tensor=8, pipeline=8).check(DENSE)
    assert problem.value.message.count("leaves") == 3
