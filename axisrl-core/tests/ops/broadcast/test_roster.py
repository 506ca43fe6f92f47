"""Tests of axisrl.ops.broadcast.roster."""

import json

from axisrl.ops.broadcast.roster import (
    Request,
    Round,
    complete,
    described,
    layout_from,
    whole,
)
from axisrl.ops.flat_buckets import Entry


def ask(receiver, rank=0, ranks=1, receivers=1):
    return Request(1, receiver, rank, ranks, receivers, device="", group="")


def test_an_engine_is_there_when_every_process_of_it_is():
    half, other = ask("a", 0, 2), ask("b")
    assert whole([half, other]) == [other]
    assert whole([ask("a", 1, 2), other, half]) == [half, ask("a", 1, 2), other]


def test_the_order_does_not_depend_on_who_came_first():
    found = [ask("b"), ask("a", 1, 2), ask("a", 0, 2)]
    assert whole(found) == whole(found[::-1])


def test_a_round_is_complete_with_as_many_engines_as_are_expected():
    assert not complete([])
    assert not complete([ask("a", receivers=2)])
    assert not complete([ask("a", receivers=2), ask("b", 0, 2, receivers=2)])
    assert complete([ask("a", receivers=2), ask("b", receivers=2)])


def test_every_sender_has_a_group_of_its_own():
    round_ = Round("g", 2, 3, "gloo", "host:1")
    assert round_.place(0).name != round_.place(1).name
    assert (round_.place(1).rank, round_.place(1).size) == (2, 3)


def test_a_layout_survives_json():
    layout = [(Entry("a", "float32", (2, 3), 0), Entry("b", "uint8", (), 65_536))]
    assert layout_from(json.loads(json.dumps(described(layout)))) == layout
