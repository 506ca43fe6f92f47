"""Tests of benchmarks/nccl_sync.py, over gloo."""

import asyncio

import pytest


@pytest.fixture
def bench():
    pytest.importorskip("axisrl_sglang", reason="needs axisrl-plugin-sglang")
    return pytest.importorskip("nccl_sync", reason="the local plugin needs torch")


def test_a_row_leaves_the_first_repetition_out(bench):
    found = bench.Measured(8.0, [9.0, 1.0, 1.0], [9.0, 3.0, 3.0], [9.0, 2.0, 2.0])
    alone = "2.00 (2.00 to 2.00)"
    assert found.cells() == ["8", "1.00", "3.00", "4.00 (4.00 to 4.00)", "2.00", alone, "4.00"]


def test_a_model_is_sent_by_two_senders_and_by_a_plain_broadcast(bench, tmp_path):
    args = bench.parse(["--model", "tiny", "--device", "cpu", "--senders", "2", "--repeat", "2"])
    found = asyncio.run(bench.measure(args, tmp_path))
    assert len(found.offers) == len(found.takes) == len(found.plain) == 2
    assert found.gigabytes > 0 and len(found.cells()) == 7
