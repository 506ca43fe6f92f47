"""What may pass through the driver."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axisrl.runtime.thin import SUMMARY_BYTES, short_error, short_id, short_parts, wire_bytes
from axisrl.types import Handle, Outcome, RolloutSummary

TEXT = st.text(max_size=600)


def handle():
    """As ``core/ray`` names them, which is longest."""
    return Handle(
        store="core/ray",
        key="a" * 56 + "-" + "b" * 32,
        shape=(1 << 40,),
        dtype="|u1",
        owner="conversations-1000",
        checksum=2**32 - 1,
    )


@given(TEXT, st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=40), TEXT)
def test_no_summary_is_over_its_bound_whatever_a_run_puts_into_it(task, parts, error):
    traces = [handle(), handle(), handle()]
    summary = RolloutSummary(
        id="train-1000000-1000",
        task_id=short_id(task),
        group=10**9,
        member=10**4,
        outcome=Outcome.POLICY_ERROR,
        reward=1 / 3,
        parts=short_parts(parts),
        turns=10**6,
        sampled_tokens=2**40,
        prompt_tokens=2**40,
        versions=(10**7, 10**8),
        trace=traces[0],
        record=traces[1],
        turn_rewards=traces[2],
        error=short_error(error),
        seconds=1 / 3,
    )
    assert wire_bytes(summary) <= SUMMARY_BYTES


@given(TEXT)
def test_shortening_an_id_twice_is_shortening_it_once(task):
    assert short_id(short_id(task)) == short_id(task)
    assert len(short_id(task).encode(errors="replace")) <= 64


def test_a_short_id_stays_and_long_ones_keep_their_beginning_and_differ():
    assert short_id("gsm8k/train/7") == "gsm8k/train/7"
    one, other = short_id("x" * 200 + "1"), short_id("x" * 200 + "2")
    assert one.startswith("x" * 47 + "~") and one != other


def test_parts_are_kept_in_order_as_long_as_there_is_room():
    assert short_parts({"a": 1.0, "b": 2.0}) == {"a": 1.0, "b": 2.0}
    many = {f"part-{number:02d}": float(number) for number in range(40)}
    assert list(short_parts(many)) == list(many)[:16]


@pytest.mark.parametrize("error", ["short", "\N{GRINNING FACE}" * 100, "\ud800" * 300])
def test_an_error_is_cut_between_characters(error):
    assert len(short_error(error).encode()) <= 200


def test_wire_bytes_are_what_travels():
    assert wire_bytes({"a": 1}) == len(pickle.dumps({"a": 1}, protocol=5))
