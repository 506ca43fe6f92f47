"""Tests of axisrl_local.packed."""

import numpy as np
import pytest
import torch

from axisrl_local.packed import RowLayout, packed_attention

CPU = torch.device("cpu")


def heads(tokens, count, seed):
    generator = torch.Generator().manual_seed(seed)
    shape = (1, count, tokens, 8)
    return torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True)


def attend(query, key, value, starts, **options):
    rows = RowLayout.of(np.array(starts, np.int32), CPU)
    output, weights = packed_attention(
        torch.nn.Module(), query, key, value, None, rows=rows, scaling=0.3, **options
    )
    assert weights is None
    return output


def masked_attention(query, key, value, row_of, window=None):
    """All tokens against all, with the block mask written out."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    at = torch.arange(query.shape[2])
    allowed = (row_of[:, None] == row_of) & (at[:, None] >= at)
    if window is not None:
        allowed &= at[:, None] - at < window
    scores = (query @ key.transpose(2, 3) * 0.3).masked_fill(~allowed, -torch.inf)
    return (scores.softmax(-1) @ value).transpose(1, 2)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_output_and_gradient_equal_attention_under_a_block_mask(kv_heads, window):
    query, key, value = heads(9, 4, 0), heads(9, kv_heads, 1), heads(9, kv_heads, 2)
    row_of = torch.tensor([0, 0, 0, 0, 0, 1, 2, 2, 2])
    got = attend(query, key, value, [0, 5, 6, 9], sliding_window=window)
    want = masked_attention(query, key, value, row_of, window)
    torch.testing.assert_close(got, want)
    pull = torch.randn(got.shape, dtype=torch.float64)
    grads = [torch.autograd.grad((x * pull).sum(), (query, key, value)) for x in (got, want)]
    torch.testing.assert_close(*grads)


def test_a_row_is_bit_identical_whatever_else_is_in_the_batch():
    query, key, value = heads(9, 4, 0), heads(9, 2, 1), heads(9, 2, 2)
    whole = attend(query, key, value, [0, 5, 9])
    alone = attend(*(x[:, :, 5:] for x in (query, key, value)), [0, 4])
    assert torch.equal(whole[:, 5:], alone)


def test_empty_rows_are_left_out():
    rows = RowLayout.of(np.array([0, 0, 3, 3, 7], np.int32), CPU)
    assert rows.lengths == (3, 4)
    assert rows.offsets_R.tolist() == [0, 3, 7]
    assert rows.longest == 4
