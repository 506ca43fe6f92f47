"""Tests of axisrl_megatron.context and portion without a second process; test_ranks.py has the
others."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from axisrl.ops.row_layout import RowLayout
from axisrl.ops.token_batch import token_batch
from axisrl.testing.sequences import packed, random_samples
from axisrl_megatron.context import ContextPart
from axisrl_megatron.layout import Layout

pytestmark = pytest.mark.needs("megatron")
CPU = torch.device("cpu")


def parts(size, tokens):
    return [ContextPart(index=i, size=size, tokens=tokens, group=None) for i in range(size)]


@pytest.mark.parametrize(("size", "tokens"), [(2, 4), (2, 16), (3, 12), (4, 64)])
def test_every_token_is_one_ranks(size, tokens):
    own = torch.cat([part.own_N(CPU) for part in parts(size, tokens)])
    assert sorted(own.tolist()) == list(range(tokens))


def test_a_rank_has_an_early_and_a_late_chunk():
    assert [part.own_N(CPU).tolist() for part in parts(2, 8)] == [[0, 1, 6, 7], [2, 3, 4, 5]]


def test_ranks_have_as_many_pairs_of_one_long_row_to_attend_to():
    pairs = [int((part.own_N(CPU) + 1).sum()) for part in parts(4, 64)]
    assert len(set(pairs)) == 1


@pytest.mark.parametrize("lengths", [[16], [1] * 16, [3, 5, 1, 7], [7, 9], [2, 2, 12], [15, 1]])
@pytest.mark.parametrize("size", [2, 4])
def test_segments_name_each_query_with_all_that_it_sees(lengths, size):
    rows = RowLayout.from_lengths(lengths, CPU)
    row = np.repeat(np.arange(len(lengths)), lengths)
    start = np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
    for part in parts(size, 16):
        seen = []
        for segment in part.segments(rows):
            first = segment.first_key
            for queries, keys in zip(segment.queries.lengths, segment.keys.lengths, strict=True):
                ends = range(first + keys - queries, first + keys)
                seen.extend((token, first) for token in ends)
                first += keys
            assert first == segment.keys_end
        own = part.own_N(CPU).tolist()
        assert seen == [(token, start[token]) for token in own]
        assert all(row[token] == row[begin] for token, begin in seen)


@pytest.fixture
def first_of_two(monkeypatch):
    """The part of the first rank; the exchange adds what is at the second, and is counted."""
    other, gathers = torch.randn(8, 2, 6), []

    def all_gather(found, given, group):
        gathers.append(found)
        found.copy_(torch.cat((given, other)))

    def reduce_scatter(found, given, group):
        found.copy_(given[:8])

    monkeypatch.setattr(torch.distributed, "all_gather_into_tensor", all_gather)
    monkeypatch.setattr(torch.distributed, "reduce_scatter_tensor", reduce_scatter)
    return ContextPart(index=0, size=2, tokens=16, group=None), gathers


def attended(whole, query):
    """Saves views of what all ranks have: its gradient needs keys, values and weights."""
    key, value = whole.chunk(2, dim=-1)
    return (query * key[:8]).sigmoid() * value[:8] + (query * key[8:]).sin() * value[8:].square()


def test_what_others_have_is_gathered_once_more_for_the_backward_pass(first_of_two):
    part, gathers = first_of_two
    own, query = torch.randn(8, 2, 6), torch.randn(8, 2, 3)
    grads = []
    for kept in (True, False):
        leaf, asked = own.clone().requires_grad_(), query.clone().requires_grad_()
        found = part.seen(leaf, partial(attended, query=asked), kept=kept)
        grads.append(torch.autograd.grad(found.sum(), (leaf, asked)))
    torch.testing.assert_close(grads[1], grads[0])
    assert len(gathers) == 3


def test_every_rank_gathers_again_also_one_whose_kernel_saved_nothing(first_of_two):
    part, gathers = first_of_two
    leaf = torch.randn(8, 2, 6, requires_grad=True)
    part.seen(leaf, lambda whole: whole[:8] * 2.0).sum().backward()
    assert len(gathers) == 2


def test_nothing_is_gathered_again_without_gradients(first_of_two):
    part, gathers = first_of_two
    with torch.no_grad():
        part.seen(torch.randn(8, 2, 6), lambda whole: whole[:8])
    assert len(gathers) == 1


def test_padding_is_a_row_of_its_own_that_is_never_trained(make_model):
    from axisrl_megatron.portion import Portion

    batch = packed(random_samples(make_model(), 3))
    tokens = token_batch(batch, CPU)
    count = len(tokens.ids_N)
    layout = Layout(tensor=count + 3, sequence=True)
    mesh = SimpleNamespace(layout=layout, context_part=lambda tokens: None)
    portion = Portion.of(tokens, mesh)
    assert portion.params.layout.lengths == (*tokens.rows.lengths, 3)
    assert portion.positions_N.tolist() == [*tokens.positions_N.tolist(), 0, 1, 2]
    assert len(portion.ids_N) == count + 3
    assert portion.trained_O is tokens.trained_M


def test_a_rank_knows_which_trained_tokens_are_its_own(make_model):
    from axisrl_megatron.portion import Portion

    tokens = token_batch(packed(random_samples(make_model(), 5)), CPU)
    found = []
    for index in range(2):
        part = lambda count, index=index: parts(2, count)[index]  # noqa: E731
        portion = Portion.of(tokens, SimpleNamespace(layout=Layout(context=2), context_part=part))
        ids = portion.ids_N[portion.trained_O]
        assert ids.equal(portion.own(tokens.ids_N[tokens.trained_M]))
        found.extend(portion.among_O.tolist())
    assert sorted(found) == list(range(len(tokens.trained_M)))
