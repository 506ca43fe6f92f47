"""Tests of benchmarks/core_attention.py: no time is judged here."""

import importlib.util

import pytest
import torch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("megatron") is None, reason="needs megatron-core"
)
SMALL = ["--tokens", "64", "--heads", "4", "--kv-heads", "2", "--size", "16", "--repeat", "1"]


@pytest.fixture
def bench():
    return pytest.importorskip("core_attention", reason="megatron/trainer needs torch")


@pytest.mark.parametrize("tokens", [64, 1024, 16384])
def test_rows_of_several_lengths_have_all_tokens(bench, tokens):
    lengths = bench.lengths_of(tokens)
    assert sum(lengths) == tokens
    assert min(lengths) > 0
    assert tokens < 1024 or any(length % 128 for length in lengths)


def test_operations_are_those_of_causal_attention_inside_rows(bench):
    given = bench.inputs(bench.parse(SMALL), [5, 2])
    assert given.operations == 2 * (25 + 4) * 4 * 16


def test_the_sides_are_printed_beside_each_other(bench, capsys):
    bench.main(SMALL)
    lines = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if "|" in line]
    rows = [[cell.strip() for cell in line] for line in lines[2:]]
    assert [row[1] for row in rows] == [*bench.SIDES, *bench.SIDES]
    assert [row[3] == "none on a CPU" for row in rows] == [False, True, False] * 2
    assert [row[4] for row in rows][::3] == ["1.00", "1.00"]


def test_sides_that_answer_differently_are_not_timed(bench, monkeypatch):
    class Half(bench.SdpaRowAttention):
        def attend(self, *given):
            return super().attend(*given) / 2

    monkeypatch.setattr(bench, "SIDES", {**bench.SIDES, "SdpaRowAttention": Half})
    with pytest.raises(SystemExit, match=r"apart from RowAttention .*'SdpaRowAttention'"):
        bench.main(SMALL)


def test_a_distance_is_of_the_largest(bench):
    found, wanted = torch.tensor([1.0, 4.5]), torch.tensor([1.0, 5.0])
    assert bench.apart([found], [wanted, wanted]) == pytest.approx(0.1)
