"""Tests of axisrl.ops.row_attention: queries that are the last tokens of their rows. That rows are
causal and see nothing of each other is tried with whole models, in the trainers' tests."""

import pytest
import torch

from axisrl.ops.row_attention import row_attention
from axisrl.ops.row_layout import RowLayout

LENGTHS = [5, 1, 9, 4]


def heads(device="cpu", dtype=torch.float32):
    """Query of four heads, key and value of two, of all rows."""
    generator = torch.Generator().manual_seed(5)
    return [
        torch.randn(1, count, sum(LENGTHS), 16, generator=generator).to(device, dtype)
        for count in (4, 2, 2)
    ]


def ends(kept, device="cpu"):
    """Which tokens are the last ``kept`` of each row, and their layout."""
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0).tolist()
    found = [i for end, n in zip(offsets[1:], kept, strict=True) for i in range(end - n, end)]
    return torch.tensor(found, device=device), RowLayout.from_lengths(kept, torch.device(device))


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("kept", [LENGTHS, [2, 1, 1, 4], [1, 1, 1, 1]])
def test_the_last_queries_of_rows_see_what_they_see_among_all(kept, window):
    query, key, value = heads()
    rows = RowLayout.from_lengths(LENGTHS, torch.device("cpu"))
    where, last = ends(kept)
    whole = row_attention((query, key, value), rows, window=window)
    found = row_attention((query[:, :, where], key, value), last, keys=rows, window=window)
    torch.testing.assert_close(found, whole[:, where])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kept", [LENGTHS, [2, 1, 1, 4], [1, 1, 1, 1]])
def test_the_kernel_for_unequal_lengths_ends_both_together(kept):
    ends_of = []
    for dtype in (torch.float32, torch.bfloat16):
        given = [x.requires_grad_() for x in heads("cuda", dtype)]
        where, last = ends(kept, "cuda")
        rows = RowLayout.from_lengths(LENGTHS, torch.device("cuda"))
        found = row_attention((given[0][:, :, where], *given[1:]), last, keys=rows)
        found.float().square().sum().backward()
        ends_of.append((found, *(x.grad for x in given)))
    for plain, half in zip(*ends_of, strict=True):
        torch.testing.assert_close(half.float(), plain, atol=5e-2, rtol=5e-2)
