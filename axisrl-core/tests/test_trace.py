import numpy as np
import pytest

from axisrl.trace import Trace
from axisrl.types import GenerateResult, Handle, SamplingParams

SAMPLING = SamplingParams(temperature=0.7, stop=("\n",), stop_token_ids=(3,))


def result(ids, version=4, routing=()):
    count = len(ids)
    return GenerateResult(
        ids=np.asarray(ids, np.int32),
        logprobs=np.linspace(-1, -0.5, count, dtype=np.float32),
        versions=np.full(count, version, np.int32),
        finish_reason="stop",
        routing=routing,
    )


def conversation():
    """prompt 1 2 3 - sampled 10 11 - observation 4 - sampled 12, and a branch from the answer."""
    trace = Trace()
    prompt = trace.append("prompt", [1, 2, 3], parent=None)
    first = trace.append_sampled(result([10, 11]), parent=prompt, sampling=SAMPLING, seed=5)
    seen = trace.append("observation", [4], parent=first)
    trace.append_sampled(result([12], version=5), parent=seen, sampling=SAMPLING, seed=6)
    edited = trace.append("observation", [6, 7], parent=first)
    trace.append_sampled(result([13, 14]), parent=edited, sampling=SAMPLING, seed=7)
    return trace


def test_a_path_is_the_tokens_from_the_root_down():
    trace = conversation()
    assert trace.ids(3).tolist() == [1, 2, 3, 10, 11, 4, 12]
    assert trace.ids(5).tolist() == [1, 2, 3, 10, 11, 6, 7, 13, 14]
    assert trace.leaves() == [3, 5]


def test_every_sampled_token_is_trained_in_exactly_one_row():
    rows = conversation().rows()
    trained = np.concatenate([row.ids[row.trained] for row in rows]).tolist()
    assert sorted(trained) == [10, 11, 12, 13, 14]
    assert rows[1].ids[rows[1].trained].tolist() == [13, 14]


def test_a_shared_token_keeps_its_logprob_in_a_row_that_does_not_train_it():
    second = conversation().rows()[1]
    assert second.logprobs[3] == np.float32(-1.0)
    assert second.versions.tolist() == [-1, -1, -1, 4, 4, -1, -1, 4, 4]
    assert second.temperature[3] == np.float32(0.7)
    assert second.temperature[0] == 1


def test_a_branch_that_adds_no_sampled_token_makes_no_row():
    trace = conversation()
    trace.append("observation", [9], parent=1)
    assert len(trace.rows()) == 2


def test_bytes_hold_the_whole_trace():
    trace = conversation()
    handle = Handle(
        store="s", key="k", shape=(2, 3), dtype="uint8", owner="o", checksum=9, rows=(0, 1)
    )
    trace.append_sampled(result([15], routing=(handle,)), parent=4, sampling=SAMPLING, seed=8)
    copy = Trace.from_bytes(trace.to_bytes())
    assert len(copy) == len(trace)
    for mine, theirs in zip(trace, copy, strict=True):
        for name in ("ids", "logprobs", "versions"):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name)), name
        for name in ("parent", "kind", "finish_reason", "sampling", "seed", "routing"):
            assert getattr(mine, name) == getattr(theirs, name), name


def test_an_empty_trace_survives_its_bytes():
    assert len(Trace.from_bytes(Trace().to_bytes())) == 0


# Named, because a trace's bytes are in no fixed order and would make another name in each process.
@pytest.mark.parametrize(
    "blob", [b"", b"no trace", Trace().to_bytes()[:40]], ids=["empty", "text", "cut short"]
)
def test_other_bytes_are_refused(blob):
    with pytest.raises(ValueError, match="not an axisrl trace"):
        Trace.from_bytes(blob)


def test_arrays_in_a_trace_cannot_be_changed():
    trace = conversation()
    with pytest.raises(ValueError, match="read-only"):
        trace[0].ids[0] = 99


def test_the_trace_copies_what_it_is_given():
    ids = np.asarray([1, 2], np.int32)
    trace = Trace()
    trace.append("prompt", ids, parent=None)
    ids[0] = 99
    assert trace.ids(0).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("ids", "parent", "message"),
    [
        ([], None, "one or more token ids"),
        ([[1, 2]], None, "one or more token ids"),
        ([-1], None, "negative"),
        ([1], 7, "parent 7"),
    ],
)
def test_bad_runs_of_tokens_are_refused(ids, parent, message):
    with pytest.raises(ValueError, match=message):
        Trace().append("prompt", ids, parent=parent)


def test_sampled_tokens_need_a_logprob_each():
    trace = Trace()
    trace.append("prompt", [1], parent=None)
    short = GenerateResult(
        ids=np.asarray([1, 2], np.int32),
        logprobs=np.zeros(1, np.float32),
        versions=np.zeros(2, np.int32),
        finish_reason="stop",
    )
    with pytest.raises(ValueError, match="logprobs must have the shape"):
        trace.append_sampled(short, parent=0, sampling=SAMPLING, seed=0)


def test_a_logprob_that_is_not_finite_is_refused():
    trace = Trace()
    trace.append("prompt", [1], parent=None)
    broken = GenerateResult(
        ids=np.asarray([1], np.int32),
        logprobs=np.asarray([np.nan], np.float32),
        versions=np.zeros(1, np.int32),
        finish_reason="stop",
    )
    with pytest.raises(ValueError, match="not finite"):
        trace.append_sampled(broken, parent=0, sampling=SAMPLING, seed=0)


def test_sampled_nodes_come_only_from_a_model_call():
    with pytest.raises(ValueError, match="append_sampled"):
        Trace().append("sampled", [1], parent=None)


def test_a_long_chain_needs_no_recursion():
    trace = Trace()
    leaf = trace.append("prompt", [1], parent=None)
    for turn in range(3000):
        leaf = trace.append_sampled(result([2]), parent=leaf, sampling=SAMPLING, seed=turn)
        leaf = trace.append("observation", [3], parent=leaf)
    assert trace.rows()[0].trained.sum() == 3000


def told(count):
    return Handle(store="s", key="k", shape=(count, 1, 1), dtype="|u1", owner="o", checksum=0)


def routed_conversation():
    """1 2 3 - 10 11 - 4 - 12, and a branch from the answer: 6 7 - 13 14, told in the order said."""
    trace = Trace()
    prompt = trace.append("prompt", [1, 2, 3], parent=None)
    first = result([10, 11], routing=(told(1), told(3)))
    trace.append_sampled(first, parent=prompt, sampling=SAMPLING, seed=5)
    seen = trace.append("observation", [4], parent=1)
    trace.append_sampled(result([12], routing=(told(2),)), parent=seen, sampling=SAMPLING, seed=6)
    edited = trace.append("observation", [6, 7], parent=1)
    last = result([13, 14], routing=(told(4),))
    trace.append_sampled(last, parent=edited, sampling=SAMPLING, seed=7)
    return trace


def test_branches_share_the_experts_of_what_they_share():
    trace = Trace.from_bytes(routed_conversation().to_bytes())
    main, branch = trace.rows()
    assert main.experts_at.tolist() == [0, 1, 2, 3, 4, 5, -1]
    assert branch.experts_at.tolist() == [0, 1, 2, 3, 6, 7, 8, 9, -1]


def test_a_path_knows_how_many_of_its_tokens_have_experts():
    trace = routed_conversation()
    assert [trace.routed(node) for node in range(len(trace))] == [0, 4, 4, 6, 4, 8]


def test_without_routing_no_token_has_experts():
    assert {place for row in conversation().rows() for place in row.experts_at.tolist()} == {-1}


def test_a_trace_written_before_experts_were_counted_has_none():
    blob = conversation().to_bytes()
    size = int.from_bytes(blob[:8], "little")
    header = blob[8 : 8 + size].replace(rb"\"routing\": 0", rb"\"routing\": null")
    assert b"null}" in header
    older = len(header).to_bytes(8, "little") + header + blob[8 + size :]
    rows = Trace.from_bytes(older).rows()
    assert {place for row in rows for place in row.experts_at.tolist()} == {-1}
