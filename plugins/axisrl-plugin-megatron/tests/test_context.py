"""Tests of axisrl_megatron.context and portion without a second process; test_ranks.py has the
others."""

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
