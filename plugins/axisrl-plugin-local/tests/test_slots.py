"""Tests of axisrl_local.slots."""

import pytest
import torch

from axisrl_local.slots import Geometry, SlotCache, all_spans, exact_spans, length_mask

SMALL = Geometry(layers=2, query_heads=4, key_heads=2, head_size=16)


def test_the_cache_grows_and_keeps_what_it_held():
    cache = SlotCache(SMALL, 3, torch.zeros(1))
    cache.ensure(64, 1024)
    cache.keys[1][2, :, 5] = 7.0
    cache.ensure(65, 1024)
    assert cache.capacity == 128 and cache.keys[1].shape == (4, 2, 128, 16)
    assert cache.keys[1][2, :, 5].eq(7).all() and cache.keys[1].sum() == 7 * 32


def test_the_cache_does_not_grow_over_its_limit():
    cache = SlotCache(SMALL, 1, torch.zeros(1))
    cache.ensure(128, 192)
    cache.ensure(192, 192)
    assert cache.capacity == 192


def test_a_copy_takes_the_prefix_of_every_layer_and_nothing_else():
    cache = SlotCache(SMALL, 3, torch.zeros(1))
    cache.ensure(64, 64)
    for number, tensor in enumerate((*cache.keys, *cache.values)):
        tensor[0] = number + 1
    cache.copy(0, 2, 10)
    for number, tensor in enumerate((*cache.keys, *cache.values)):
        assert tensor[2, :, :10].eq(number + 1).all()
        assert tensor[2, :, 10:].eq(0).all() and tensor[1].eq(0).all()


def test_a_cleared_slot_holds_no_nan():
    cache = SlotCache(SMALL, 2, torch.zeros(1))
    cache.ensure(64, 64)
    cache.values[0][1] = float("nan")
    cache.clear(1)
    assert cache.values[0].isfinite().all()


def test_a_freed_cache_holds_nothing_and_comes_back_as_large_and_empty():
    cache = SlotCache(SMALL, 2, torch.zeros(1, dtype=torch.bfloat16))
    cache.ensure(64, 64)
    cache.keys[0][1] = 3.0
    for _ in range(2):
        cache.free()
    assert cache.capacity == sum(t.numel() for t in (*cache.keys, *cache.values)) == 0
    for _ in range(2):
        cache.restore()
    assert cache.capacity == 64 and cache.keys[0].shape == (3, 2, 64, 16)
    assert cache.keys[0].dtype == torch.bfloat16 and not cache.keys[0].any()


def test_a_mask_hides_what_comes_after_the_length():
    mask = length_mask(torch.tensor([1, 3]), 4, torch.float32)
    assert mask.shape == (2, 1, 1, 4)
    assert mask.isfinite().sum((1, 2, 3)).tolist() == [1, 3]


@pytest.mark.parametrize(
    ("limit", "spans"),
    [
        (2, [32]),
        (32, [32]),
        (33, [32, 64]),
        (480, list(range(32, 512, 32))),
        (481, list(range(32, 513, 32))),
        (1025, [*range(32, 513, 32), 1024, 1536]),
    ],
)
def test_spans_reach_the_limit_and_stop_there(limit, spans):
    assert all_spans(limit) == spans


@pytest.mark.parametrize("heads", [(4, 2), (9, 3), (8, 1)])
def test_spans_called_exact_give_the_same_bits_on_other_numbers(heads):
    geometry = Geometry(layers=1, query_heads=heads[0], key_heads=heads[1], head_size=64)
    spans = exact_spans(geometry, 1024, torch.zeros(1))
    assert spans[-1] == 1024 and len(spans) >= 2
    query = torch.randn(6, heads[1], heads[0] // heads[1], 64)
    keys, values = torch.randn(2, 6, heads[1], 1024, 64)

    def attend(rows, span):
        return torch.nn.functional.scaled_dot_product_attention(
            query[rows],
            keys[rows, :, :span],
            values[rows, :, :span],
            attn_mask=length_mask(torch.full((len(query[rows]),), 20), span, torch.float32),
        )

    whole = attend(slice(0, 6), 1024)
    for span in spans:
        assert torch.equal(attend(slice(0, 6), span), whole)
        assert torch.equal(attend(slice(2, 3), span), whole[2:3])
